"""Kafka's own jars, downloaded once, so that tests can ask Kafka itself what is right."""

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

KAFKA_VERSION = "4.3.0"
SPARK_VERSION = "4.3.0"
DOWNLOAD_TIMEOUT_S = 900
JAVA_TIMEOUT_S = 120

_POMS = Path(__file__).parent / "kafka"

# Where each jar keeps its message definitions.
_SCHEMA_FOLDERS = {
    "kafka-clients": "common/message/",
    "kafka-group-coordinator": "common/message/",
    "kafka-transaction-coordinator": "common/message/",
    "kafka-share-coordinator": "common/message/",
    "kafka-raft": "common/message/",
    "kafka-metadata": "common/metadata/",
    "kafka-storage": "message/",
}


class Unavailable(Exception):
    """Kafka's jars, or the Java to run them, cannot be had here; the text says why."""


def kafka_jars() -> Path:
    """The directory that holds the jars of a whole Kafka server, downloading them on first use."""
    return _downloaded(f"kafka-{KAFKA_VERSION}", _POMS / "pom.xml")


def streams_jars() -> Path:
    """The directory that holds the jars of Kafka Streams, downloading them on first use."""
    return _downloaded(f"kafka-streams-{KAFKA_VERSION}", _POMS / "streams" / "pom.xml")


def spark_connector_jars() -> Path:
    """The directory that holds the jars of Spark's own connector for Kafka, downloading them on first use.

    It is the connector of the Spark that is installed or, where that cannot be had, of the release before,
    which runs on it too.
    """
    names = {f"spark-kafka-{SPARK_VERSION}": "spark", "spark-kafka-4.2.0": "spark-before"}
    for name in names:
        if (_cache() / name).is_dir():
            return _cache() / name
    failure: Unavailable | None = None
    for name, folder in names.items():
        try:
            return _downloaded(name, _POMS / folder / "pom.xml")
        except Unavailable as why:
            failure = failure or why
    assert failure is not None
    raise failure


@functools.cache
def schemas() -> dict[str, dict[str, Any]]:
    """Every message and internal record that Kafka defines, by name, as its JSON says."""
    found: dict[str, dict[str, Any]] = {}
    for jar_name, folder in _SCHEMA_FOLDERS.items():
        with zipfile.ZipFile(kafka_jars() / f"{jar_name}-{KAFKA_VERSION}.jar") as jar:
            for path in jar.namelist():
                if path.startswith(folder) and path.endswith(".json"):
                    schema = json.loads(_without_comments(jar.read(path).decode()))
                    assert schema["name"] not in found, f"two schemas are named {schema['name']}"
                    found[schema["name"]] = schema
    return found


def find_java() -> str:
    """The Java to run Kafka's classes with."""
    java = shutil.which("java")
    if java is None:
        raise Unavailable("java is not installed")
    return java


def run_java(source: str, *args: str, stdin: str | None = None) -> str:
    """What a single-file Java program prints when it runs with Kafka's jars on its class path."""
    java = find_java()
    class_path = str(kafka_jars() / "*")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "Program.java"
        program.write_text(source)
        done = subprocess.run(
            [java, "-Dfile.encoding=UTF-8", "-cp", class_path, str(program), *args],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=JAVA_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, f"the Java program failed:\n{done.stderr}"
    return done.stdout


def _cache() -> Path:
    chosen = os.environ.get("MOLDAU_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "moldau-tests"


def _downloaded(name: str, pom: Path) -> Path:
    jars = _cache() / name
    if jars.is_dir():
        return jars
    jars.parent.mkdir(parents=True, exist_ok=True)
    with open(jars.parent / f"{jars.name}.lock", "w") as lock:
        # Parallel test workers come here together: one downloads, the others find the result.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _download(jars, pom)
    return jars


def _download(jars: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("mvn is not installed, so Kafka's jars cannot be downloaded")
    with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
        # Maven writes next to the pom file, which must not be the source tree.
        shutil.copy(pom, folder)
        copied = Path(folder) / "jars"
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={copied}"]
        try:
            subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=True
            )
        except subprocess.CalledProcessError as failed:
            why = _first_error(failed.stdout)
            raise Unavailable(f"mvn could not download {jars.name}: {why}") from failed
        except subprocess.TimeoutExpired as late:
            raise Unavailable(f"mvn did not download {jars.name} within {DOWNLOAD_TIMEOUT_S} s") from late
        copied.rename(jars)


def _first_error(maven_output: str) -> str:
    errors = (line for line in maven_output.splitlines() if line.startswith("[ERROR]"))
    return next(errors, "it did not say why")


def _without_comments(text: str) -> str:
    """JSON as Kafka writes it, less the lines that are comments."""
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
