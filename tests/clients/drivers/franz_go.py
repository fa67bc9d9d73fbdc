"""franz-go, a client in Go with the whole of Kafka's protocol."""

from __future__ import annotations

from clients.drivers.driver import Driver
from clients.drivers.subprocess_driver import SubprocessDriver
from clients.foreign.programs import go_command


def start(bootstrap: str) -> Driver:
    """The client in a process of its own, connected."""
    return SubprocessDriver(go_command("franz_go"), bootstrap, client="franz-go")
