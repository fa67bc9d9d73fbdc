"""What all tests share."""

from collections.abc import Callable
from pathlib import Path

import kafka_jars as kafka
import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no bug: no test fails for being slow, and every run tries the same examples.
settings.register_profile(
    "moldau", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("moldau")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Kafka's own jars; a test that asks for them is skipped where they cannot be had."""
    try:
        return kafka.kafka_jars()
    except kafka.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def run_java(kafka_jars: Path) -> Callable[..., str]:
    """`kafka_jars.run_java`; a test that asks for it is skipped where there is no Java."""
    try:
        kafka.find_java()
    except kafka.Unavailable as why:
        pytest.skip(str(why))
    return kafka.run_java
