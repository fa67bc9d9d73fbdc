"""Programs in other languages: each is built once, and kept outside of the repository."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import kafka_jars
from clients.drivers.driver import ToolchainMissing

JAVA_VERSION_MIN = (17,)
# From here on Go fetches the version that a program asks for, where it may.
GO_VERSION_MIN = (1, 21)
INSTALL_TIMEOUT_S = 300

_SOURCES = Path(__file__).parent
_JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")


def node_command(name: str, *, node_version_min: tuple[int, ...], program: str = "driver.mjs") -> list[str]:
    """The command that runs a program of a folder, after installing what the folder's lock file names."""
    node = find_tool("node", version_min=node_version_min)
    npm = find_tool("npm")
    built = _built(
        name, lambda folder: download([npm, "ci", "--no-audit", "--no-fund"], folder), made_with="npm"
    )
    return [node, str(built / program)]


def go_command(name: str) -> list[str]:
    """The command that runs the Go program of a folder."""
    go = find_tool("go", version_min=GO_VERSION_MIN, version_arguments=("version",))

    def build(folder: Path) -> None:
        download([go, "mod", "download"], folder)
        _run([go, "build", "-trimpath", "-buildvcs=false", "-o", "program", "."], folder)

    return [str(_built(name, build, made_with="go") / "program")]


def java_command(main_class: str) -> list[str]:
    """The command that runs a class of the Java folder, with Kafka's jars on its class path."""
    return _java_command("java", kafka_jars.kafka_jars, main_class)


def streams_command(main_class: str) -> list[str]:
    """The command that runs a class of the Streams folder, with the jars of Kafka Streams."""
    return _java_command("streams", kafka_jars.streams_jars, main_class)


def _java_command(name: str, find_jars: Callable[[], Path], main_class: str) -> list[str]:
    javac = find_tool("javac", version_min=JAVA_VERSION_MIN)
    try:
        java, jars = kafka_jars.find_java(), f"{find_jars()}/*"
    except kafka_jars.Unavailable as why:
        raise ToolchainMissing(str(why)) from why

    def compile_sources(folder: Path) -> None:
        sources = sorted(path.name for path in folder.glob("*.java"))
        _run([javac, "-proc:none", "-cp", jars, "-d", "classes", *sources], folder)

    classes = _built(name, compile_sources, made_with=f"kafka {kafka_jars.KAFKA_VERSION}") / "classes"
    return [java, *_JVM_FLAGS, "-cp", f"{classes}:{jars}", main_class]


def find_tool(
    name: str, *, version_min: tuple[int, ...] = (), version_arguments: Sequence[str] = ("--version",)
) -> str:
    """Where a tool is; ToolchainMissing if it is not installed, does not run or is too old."""
    path = shutil.which(name)
    if path is None:
        raise ToolchainMissing(f"{name} is not installed")
    said = subprocess.run([path, *version_arguments], capture_output=True, text=True, check=False)
    version = re.search(r"\d+(\.\d+)*", said.stdout)
    if said.returncode != 0 or version is None:
        raise ToolchainMissing(f"{name} does not tell its version")
    if tuple(int(part) for part in version[0].split(".")) < version_min:
        raise ToolchainMissing(f"{name} {version[0]} is older than {'.'.join(map(str, version_min))}")
    return path


def download(command: Sequence[str], folder: Path) -> None:
    """Run a command that needs the network, which may not be there."""
    try:
        _run(command, folder)
    except subprocess.CalledProcessError as failed:
        why = next((line for line in failed.stderr.splitlines() if "warn" not in line), "it did not say why")
        raise ToolchainMissing(f"{' '.join(command)} failed: {why}") from failed
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"{' '.join(command)} took over {INSTALL_TIMEOUT_S} s") from late


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=True)


def _built(name: str, build: Callable[[Path], None], *, made_with: str) -> Path:
    """The folder with the sources of a program and what was built of them, for these very sources."""
    digest = hashlib.sha256(made_with.encode())
    for path in sorted((_SOURCES / name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    target = _cache() / f"{name}-{digest.hexdigest()[:16]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        # Parallel test workers come here together: one builds, the others find the result.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                folder = Path(shutil.copytree(_SOURCES / name, Path(scratch) / name))
                build(folder)
                folder.rename(target)
    return target


def _cache() -> Path:
    chosen = os.environ.get("MOLDAU_TEST_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau-tests"
