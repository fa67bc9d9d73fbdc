"""The clients that judge the broker, each behind the same interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from clients.drivers.driver import Driver, ToolchainMissing

# The client that sets scenes for the others, and that exchanges records with each of them.
REFERENCE = "librdkafka"

# Modules are loaded when their client is asked for: not every machine has every language.
_MODULES = {
    "librdkafka": "librdkafka",
    "kcat": "kcat",
    "kafka-python": "kafka_python",
    "aiokafka": "aiokafka_driver",
    "Java client": "java",
    "Kafka's console tools": "kafka_tools",
    "kafkajs": "kafkajs",
    "@platformatic/kafka": "platformatic",
    "franz-go": "franz_go",
    "moldau.client": "own",
}


def _factory(module: str) -> Callable[[str], Driver]:
    def start(bootstrap: str) -> Driver:
        try:
            found = importlib.import_module(f"clients.drivers.{module}")
        except ModuleNotFoundError as missing:
            raise ToolchainMissing(f"{missing.name} is not installed") from missing
        driver: Driver = found.start(bootstrap)
        return driver

    return start


DRIVERS: dict[str, Callable[[str], Driver]] = {name: _factory(module) for name, module in _MODULES.items()}


def make_driver(name: str, bootstrap: str) -> Driver:
    """The client of this name, connected; ToolchainMissing where it cannot run."""
    return DRIVERS[name](bootstrap)
