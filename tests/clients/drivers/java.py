"""Kafka's own client, in Java."""

from __future__ import annotations

from clients.drivers.driver import Driver
from clients.drivers.subprocess_driver import SubprocessDriver
from clients.foreign.programs import java_command


def start(bootstrap: str) -> Driver:
    """The client in a process of its own, connected."""
    return SubprocessDriver(java_command("Driver"), bootstrap, client="Java client")
