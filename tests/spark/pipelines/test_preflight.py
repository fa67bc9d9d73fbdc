"""What is caught before Spark starts, and what its user is told to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.pipelines.preflight import (
    PACKAGES,
    Java,
    Problem,
    WorkerPython,
    check_java,
    check_packages,
    check_workers,
    java_version,
)

FINE = {
    "pyspark": "4.3.0",
    "pyarrow": "21.0.0",
    "pandas": "2.3.3",
    "grpcio": "1.76.0",
    "grpcio-status": "1.76.0",
    "googleapis-common-protos": "1.71.0",
    "pyyaml": "6.0.3",
    "zstandard": "0.25.0",
}


# ---------------------------------------------------------------- packages


def test_nothing_is_wrong_with_what_pip_installs() -> None:
    assert check_packages(is_declarative=True, version_of=FINE.get) == []
    assert check_packages(is_declarative=True) == []


def test_without_pyspark_nothing_else_is_complained_of() -> None:
    (problem,) = check_packages(is_declarative=True, version_of=lambda name: None)
    assert "PySpark is not installed" in problem.what
    assert "pip install 'moldau[spark]'" in problem.fix


@pytest.mark.parametrize(
    ("changed", "is_declarative", "what"),
    [
        ({"pandas": "3.0.1"}, False, "pandas 3.0.1 is too new: it must be 2.2 or newer, and below 3."),
        ({"pyspark": "4.1.2"}, False, "pyspark 4.1.2 is too old: it must be 4.3 or newer, and below 5."),
        ({"pyspark": "5.0.0"}, False, "pyspark 5.0.0 is too new"),
        ({"pyarrow": None}, False, "PySpark needs pyarrow, not installed here."),
        ({"grpcio": None, "zstandard": None}, True, "Declarative pipelines need grpcio, zstandard"),
        ({"grpcio": "1.60.1"}, True, "grpcio 1.60.1 is too old"),
    ],
)
def test_what_is_missing_or_of_the_wrong_version_is_named(
    changed: dict[str, str | None], is_declarative: bool, what: str
) -> None:
    (problem,) = check_packages(is_declarative=is_declarative, version_of=(FINE | changed).get)
    assert problem.what.startswith(what)
    assert "pip install" in problem.fix


def test_what_only_graphs_need_is_not_asked_of_a_function() -> None:
    without = {package.name: None for package in PACKAGES if package.only_declarative}
    assert without
    assert check_packages(is_declarative=False, version_of=(FINE | without).get) == []


# ---------------------------------------------------------------- Java


def java(folder: Path, said: str, exit_code: int = 0) -> Path:
    """Something that answers `java -version` so."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_says(said: str, version: int | None) -> None:
    assert java_version(said) == version


def test_java_is_taken_from_java_home_before_the_path(tmp_path: Path) -> None:
    new = java(tmp_path / "new", 'openjdk version "21.0.1"')
    old = java(tmp_path / "old", 'openjdk version "11.0.2"')
    found = check_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)})
    assert isinstance(found, Java)
    assert (found.path, found.version) == (str(new), 21)
    found = check_java({"PATH": f"{new.parent}:{old.parent}:{os.environ['PATH']}"})
    assert isinstance(found, Java)
    assert found.version == 21


def test_java_that_is_too_old_is_named_with_where_it_was_found(tmp_path: Path) -> None:
    old = java(tmp_path, 'java version "1.8.0_292"')
    problem = check_java({"PATH": f"{old.parent}:{os.environ['PATH']}"}, platform="linux")
    assert isinstance(problem, Problem)
    assert problem.what == f"Spark needs Java 17 or newer, and {old} is Java 8."
    assert "apt install openjdk-17" in problem.fix
    assert "JAVA_HOME" in problem.fix
    problem = check_java({"JAVA_HOME": str(tmp_path)})
    assert isinstance(problem, Problem)
    assert problem.what == "Spark needs Java 17 or newer, and JAVA_HOME leads to Java 8."


@pytest.mark.parametrize(("platform", "command"), [("linux", "sudo apt install"), ("darwin", "brew install")])
def test_without_java_there_is_something_to_copy(tmp_path: Path, platform: str, command: str) -> None:
    problem = check_java({"PATH": str(tmp_path)}, platform=platform)
    assert isinstance(problem, Problem)
    assert problem.what == "Spark needs Java 17 or newer, and there is none."
    assert command in problem.fix


def test_a_java_home_that_leads_nowhere_is_said(tmp_path: Path) -> None:
    problem = check_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path)})
    assert isinstance(problem, Problem)
    assert problem.what == "JAVA_HOME is /nowhere, and there is no bin/java in it."
    there = java(tmp_path, 'openjdk version "17"')
    problem = check_java({"JAVA_HOME": "/nowhere", "PATH": str(there.parent)})
    assert isinstance(problem, Problem)
    assert f"unset it, to use {there}" in problem.fix


def test_the_java_of_macos_that_is_none_is_recognised(tmp_path: Path) -> None:
    stub = java(tmp_path, "The operation couldn't be completed. Unable to locate a Java Runtime.", 1)
    problem = check_java({"PATH": f"{stub.parent}:{os.environ['PATH']}"}, platform="darwin")
    assert isinstance(problem, Problem)
    assert "Unable to locate a Java Runtime." in problem.what
    assert "brew install openjdk@17" in problem.fix


# ---------------------------------------------------------------- workers


def test_workers_get_this_python_unless_another_is_named() -> None:
    assert check_workers({}, {}, is_local=True) == WorkerPython(sys.executable)
    same = {"PYSPARK_PYTHON": sys.executable}
    assert check_workers({}, same, is_local=True) == WorkerPython(sys.executable)


def test_another_way_to_the_same_python_will_do(tmp_path: Path) -> None:
    link = tmp_path / "python-by-another-name"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    assert check_workers({"spark.pyspark.python": str(link)}, {}, is_local=True) == WorkerPython(str(link))


def python(folder: Path, *lines: str) -> Path:
    """Something that answers the probe so."""
    path = folder / "python"
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    path.chmod(0o755)
    return path


def test_a_python_of_another_version_is_refused(tmp_path: Path) -> None:
    path = python(tmp_path, "3.9", "")
    problem = check_workers({}, {"PYSPARK_PYTHON": str(path)}, is_local=True)
    assert isinstance(problem, Problem)
    assert problem.what.startswith(f"Workers would use Python 3.9, because PYSPARK_PYTHON is {path}")
    assert sys.executable in problem.fix


def test_a_python_without_moldau_is_refused(tmp_path: Path) -> None:
    path = python(tmp_path, f"{sys.version_info.major}.{sys.version_info.minor}", "moldau pyspark")
    problem = check_workers({"spark.pyspark.python": str(path)}, {}, is_local=True)
    assert isinstance(problem, Problem)
    assert problem.what == f"the setting spark.pyspark.python is {path}, which has no moldau and no pyspark."


@pytest.mark.parametrize("path", ["/no/such/python", "/bin/false"])
def test_what_is_no_python_is_refused(path: str) -> None:
    problem = check_workers({}, {"PYSPARK_PYTHON": path}, is_local=True)
    assert isinstance(problem, Problem)
    assert path in problem.what


def test_the_python_of_other_machines_cannot_be_looked_at() -> None:
    there = {"PYSPARK_PYTHON": "/opt/env/bin/python"}
    assert check_workers({}, there, is_local=False) == WorkerPython("/opt/env/bin/python")
    assert check_workers({}, {}, is_local=False) == WorkerPython("python3")


def test_a_pandas_that_is_really_installed_is_judged(tmp_path: Path) -> None:
    """The real way: a folder with pandas 3 before all others on the path."""
    metadata = tmp_path / "pandas-3.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pandas\nVersion: 3.0.0\n")
    script = (
        "from moldau.spark.pipelines.preflight import check_packages\n"
        "print(*check_packages(is_declarative=False), sep='\\n')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("pandas 3.0.0 is too new")
