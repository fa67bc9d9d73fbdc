"""One Spark session and one broker for all tests that need them; under xdist these share a worker."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import kafka_jars
import pytest

import moldau
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A session takes ten seconds to start and a gigabyte to run, so it is for one worker only."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(300))


def pytest_collection_finish(session: pytest.Session) -> None:
    """xdist knows groups by the names of tests, which is none of pytest's promises."""
    if getattr(session.config.option, "loadgroup", False):
        alone = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in nodeid for nodeid in alone), "this pytest and this xdist do not agree on groups"


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The session; a test that asks for it is skipped where there is no Java for Spark."""
    why = why_no_spark()
    if why:
        pytest.skip(why)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("moldau tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        # Nothing runs long enough for the second compiler to pay: a third less work without it.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """A broker for all of them."""
    with moldau.cluster() as running:
        yield running


@pytest.fixture
def topic(broker: Cluster) -> str:
    """A new topic with one partition."""
    return broker.topic()


@pytest.fixture
def kafka_connector() -> None:
    """Spark's own connector for Kafka; a test that asks for it is skipped where it cannot be had."""
    try:
        kafka_jars.spark_connector_jars()
    except kafka_jars.Unavailable as why:
        pytest.skip(str(why))


def connector_jars() -> list[Path]:
    """The jars of that connector, which the session must have from its start; none where there are none."""
    try:
        return sorted(kafka_jars.spark_connector_jars().glob("*.jar"))
    except kafka_jars.Unavailable:
        return []


def why_no_spark() -> str:
    """What Spark lacks here; empty if nothing."""
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    if shutil.which(java) is None:
        return f"Spark needs Java {JAVA_MIN} or newer, and there is none"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or newer, and there is: {said.splitlines()[0] if said else said}"
    return ""
