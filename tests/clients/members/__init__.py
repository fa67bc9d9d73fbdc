"""Members of groups, of every client that can join one: each is a process that can be killed or paused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from clients.drivers.driver import ToolchainMissing
from clients.foreign import programs

TESTS = Path(__file__).parents[2]


def _python(module: str, *, needs: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        if find_spec(needs) is None:
            raise ToolchainMissing(f"{needs} is not installed")
        return [sys.executable, "-m", f"clients.members.{module}"]

    return command


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "librdkafka": _python("librdkafka", needs="confluent_kafka"),
    "kafka-python": _python("kafka_python", needs="kafka"),
    "aiokafka": _python("aiokafka_member", needs="aiokafka"),
    "Java client": lambda: programs.java_command("Member"),
    "kafkajs": lambda: programs.node_command("kafkajs", node_version_min=(18,), program="member.mjs"),
    "@platformatic/kafka": lambda: programs.node_command(
        "platformatic", node_version_min=(20, 19, 4), program="member.mjs"
    ),
    "franz-go": lambda: [*programs.go_command("franz_go"), "member"],
    "moldau.client": _python("own", needs="moldau"),
}

# Those that know groups whose assignment the coordinator makes (KIP-848).
WITH_NEW_PROTOCOL = frozenset({"librdkafka", "Java client", "@platformatic/kafka", "moldau.client"})


def environment() -> dict[str, str]:
    """What a member in Python needs to find its module."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
