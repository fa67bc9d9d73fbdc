"""What Spark needs before it is started: found out in a moment here, or in a page of complaints later."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
INSTALL: Final = "pip install 'moldau[spark]'"

_PROBE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why Spark would not run, in one line, and what to do about it in another."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what} {self.fix}"


@dataclass(frozen=True, slots=True)
class Package:
    """What Python must have: the name to install it by, and the versions that will do."""

    name: str
    minimum: tuple[int, ...] = ()
    below: tuple[int, ...] = ()
    only_declarative: bool = False
    why: str = ""


PACKAGES: Final = (
    Package("pyspark", (4, 3), (5,)),
    Package("pyarrow", (18,), why="Spark and Python exchange columns with it."),
    Package("pandas", (2, 2), (3,), why="PySpark does not support pandas 3."),
    Package("grpcio", (1, 76), only_declarative=True),
    Package("grpcio-status", (1, 76), only_declarative=True),
    Package("googleapis-common-protos", (1, 71), only_declarative=True),
    Package("pyyaml", (6,), only_declarative=True),
    Package("zstandard", (0, 25), only_declarative=True),
)

VersionOf = Callable[[str], str | None]


def check_packages(*, is_declarative: bool, version_of: VersionOf | None = None) -> list[Problem]:
    """What is missing of what PySpark needs, or is of a version that will not do."""
    find = version_of or installed_version
    wanted = [package for package in PACKAGES if is_declarative or not package.only_declarative]
    found = {package: find(package.name) for package in wanted}
    missing = [package.name for package, version in found.items() if version is None]
    problems = []
    if "pyspark" in missing:
        return [
            Problem("PySpark is not installed.", f"{INSTALL} installs it, with all it needs (about 450 MB).")
        ]
    if missing:
        what = "Declarative pipelines need" if is_declarative else "PySpark needs"
        problems.append(Problem(f"{what} {', '.join(missing)}, not installed here.", f"Run: {INSTALL}"))
    for package, version in found.items():
        if version is None:
            continue
        is_old = bool(package.minimum) and _numbers(version) < package.minimum
        is_new = bool(package.below) and _numbers(version) >= package.below
        if is_old or is_new:
            problems.append(
                Problem(
                    f"{package.name} {version} is too {'old' if is_old else 'new'}: it must be"
                    f" {_range(package)}.{package.why and ' '}{package.why}",
                    f"Run: pip install '{package.name}{_requirement(package)}'",
                )
            )
    return problems


def installed_version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _range(package: Package) -> str:
    upper = f", and below {_text(package.below)}" if package.below else ""
    return f"{_text(package.minimum)} or newer{upper}"


def _requirement(package: Package) -> str:
    upper = f",<{_text(package.below)}" if package.below else ""
    return f">={_text(package.minimum)}{upper}"


# ---------------------------------------------------------------- Java


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that Spark would start."""

    path: str
    version: int
    said: str


def check_java(
    environment: Mapping[str, str] | None = None, *, platform: str = sys.platform
) -> Java | Problem:
    """The Java that Spark will start, or why there is none that will do."""
    given = os.environ if environment is None else environment
    home = given.get("JAVA_HOME", "")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            other = shutil.which("java", path=given.get("PATH"))
            hint = f", to use {other}" if other else ""
            return Problem(
                f"JAVA_HOME is {home}, and there is no bin/java in it.",
                f"Let it name a directory of Java {JAVA_MIN} or newer, or unset it{hint}.",
            )
        return _java_at(str(path), platform, by_home=True)
    found = shutil.which("java", path=given.get("PATH"))
    if found is None:
        return Problem(f"Spark needs Java {JAVA_MIN} or newer, and there is none.", install_java(platform))
    return _java_at(found, platform, by_home=False)


def _java_at(path: str, platform: str, *, by_home: bool) -> Java | Problem:
    try:
        run = subprocess.run(
            [path, "-version"], capture_output=True, text=True, check=False, timeout=_PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Problem(f"Java at {path} does not run: {error}.", install_java(platform))
    said = run.stderr.strip() or run.stdout.strip()
    version = java_version(said)
    if version is None:
        # macOS has a java that only says where to get one.
        first = (
            said.splitlines()[0].rstrip(".") if said else f"it ends with {run.returncode} and says nothing"
        )
        return Problem(f"{path} is no Java that works: {first}.", install_java(platform))
    if version < JAVA_MIN:
        where = f"JAVA_HOME leads to Java {version}" if by_home else f"{path} is Java {version}"
        return Problem(
            f"Spark needs Java {JAVA_MIN} or newer, and {where}.",
            f"{install_java(platform)} If a newer one is installed, let JAVA_HOME name its directory.",
        )
    return Java(path, version, said.splitlines()[0])


def java_version(said: str) -> int | None:
    """The version in what `java -version` says: 17 of "17.0.2", 8 of "1.8.0_292"."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def install_java(platform: str = sys.platform) -> str:
    """How to get Java here."""
    if platform == "darwin":
        return (
            "With Homebrew: brew install openjdk@17, then"
            ' export JAVA_HOME="$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"'
        )
    return (
        "On Debian or Ubuntu: sudo apt install openjdk-17-jre-headless;"
        " on Fedora: sudo dnf install java-17-openjdk-headless."
    )


# ---------------------------------------------------------------- the Python of the workers


_PROBE: Final = (
    "import sys, importlib.util as u;"
    "print('%d.%d' % sys.version_info[:2]);"
    "print(' '.join(m for m in ('moldau', 'pyarrow', 'pyspark') if u.find_spec(m) is None))"
)


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """The Python that Spark's workers get."""

    path: str


def check_workers(
    conf: Mapping[str, str], environment: Mapping[str, str] | None = None, *, is_local: bool
) -> WorkerPython | Problem:
    """The Python that workers will run: this one, unless another was named that is like this one."""
    given = os.environ if environment is None else environment
    places = {
        "the setting spark.pyspark.python": conf.get("spark.pyspark.python"),
        "PYSPARK_PYTHON": given.get("PYSPARK_PYTHON"),
    }
    named = next(((where, path) for where, path in places.items() if path), None)
    if not is_local:
        # On other machines we cannot look; there it is `python3` unless it was named.
        return WorkerPython("python3" if named is None else named[1])
    if named is None:
        return WorkerPython(sys.executable)
    where, chosen = named
    path = shutil.which(chosen, path=given.get("PATH"))
    if path is None:
        return Problem(
            f"{where} is {chosen}, and there is no such program.",
            f"Unset it, or let it be {sys.executable}, with which this runs.",
        )
    if Path(path) == Path(sys.executable):
        return WorkerPython(path)
    return _probe(where, path)


def _probe(where: str, path: str) -> WorkerPython | Problem:
    fix = f"Unset it, or let it be {sys.executable}, with which this runs."
    try:
        run = subprocess.run(
            [path, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=_PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Problem(f"{where} is {path}, which does not run: {error}.", fix)
    lines = run.stdout.splitlines()
    if run.returncode != 0 or not lines:
        return Problem(f"{where} is {path}, which is no Python that works.", fix)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if lines[0] != here:
        return Problem(
            f"Workers would use Python {lines[0]}, because {where} is {path}, and this is Python {here}: they"
            " must be the same.",
            fix,
        )
    if lines[1:] and lines[1]:
        return Problem(f"{where} is {path}, which has no {' and no '.join(lines[1].split())}.", fix)
    return WorkerPython(path)


def is_local_master(master: str) -> bool:
    """Whether the workers run on this machine."""
    return master.startswith("local")
