"""@platformatic/kafka, a new client for Node.js; of version 1, because later ones need Node.js 22."""

from __future__ import annotations

from clients.drivers.driver import Driver
from clients.drivers.subprocess_driver import SubprocessDriver
from clients.foreign.programs import node_command


def start(bootstrap: str) -> Driver:
    """The client in a process of its own, connected."""
    return SubprocessDriver(
        node_command("platformatic", node_version_min=(20, 19, 4)), bootstrap, client="@platformatic/kafka"
    )
