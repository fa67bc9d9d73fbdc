"""kafkajs, long the usual client for Node.js."""

from __future__ import annotations

from clients.drivers.driver import Driver
from clients.drivers.subprocess_driver import SubprocessDriver
from clients.foreign.programs import node_command


def start(bootstrap: str) -> Driver:
    """The client in a process of its own, connected."""
    return SubprocessDriver(node_command("kafkajs", node_version_min=(18,)), bootstrap, client="kafkajs")
