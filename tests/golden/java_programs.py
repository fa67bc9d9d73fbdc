"""The Java programs beside this file, compiled against Kafka's jars and run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kafka_jars

SOURCES = Path(__file__).parent / "java"


class Java:
    """Runs classes of Kafka's jars, and of this folder, on one class path."""

    def __init__(self, classes: Path) -> None:
        self.class_path = f"{classes}:{kafka_jars.kafka_jars()}/*"
        sources = sorted(str(path) for path in SOURCES.glob("*.java"))
        subprocess.run(
            ["javac", "-Xlint:-options", "-cp", self.class_path, "-d", classes, *sources], check=True
        )

    def command(self, main_class: str, *args: str) -> list[str]:
        """The command line that runs a class."""
        return [
            kafka_jars.find_java(),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            "-cp",
            self.class_path,
            main_class,
            *args,
        ]

    def run(self, main_class: str, *args: str, timeout_s: int = 300) -> str:
        """What a class prints until it ends."""
        done = subprocess.run(
            self.command(main_class, *args), stdout=subprocess.PIPE, timeout=timeout_s, check=True
        )
        return done.stdout.decode()


class MessageCodec:
    """Kafka's message classes, asked one question at a time."""

    def __init__(self, java: Java) -> None:
        self._process = subprocess.Popen(
            java.command("MessageCodec"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> "MessageCodec":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """Kafka's answer; one with an `error` says that Kafka refused."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **question}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
