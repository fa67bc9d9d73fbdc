"""`moldau version`: what is installed here, and whether the compiled parts are in use."""

import importlib.metadata
import json
import platform
from typing import Literal, TypedDict

import click

import moldau

# The libraries that change what Moldau can do or how fast it does it, with the extra that brings each.
OPTIONAL_LIBRARIES = {
    "isal": "fast",
    "numpy": "arrow",
    "pyarrow": "arrow",
    "pyspark": "spark",
}


class Versions(TypedDict):
    """What `-o json` prints: names are stable, a library that is absent is null."""

    moldau: str
    python: str
    kernel: Literal["compiled", "pure"]
    decoder: Literal["compiled", "pure"]
    libraries: dict[str, str | None]


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(output: str) -> None:
    """Show what is installed, and whether the compiled kernel is in use.

    \b
    Examples:
      moldau version
      moldau version -o json | jq -r .kernel
    """
    versions = installed()
    click.echo(json.dumps(versions, indent=2) if output == "json" else as_table(versions))


def installed() -> Versions:
    """The versions of Moldau, of Python and of the optional libraries."""
    return Versions(
        moldau=moldau.__version__,
        python=platform.python_version(),
        kernel=kernel_in_use(),
        decoder=decoder_in_use(),
        libraries={name: library_version(name) for name in OPTIONAL_LIBRARIES},
    )


def kernel_in_use() -> Literal["compiled", "pure"]:
    """Whether records are walked by the compiled kernel or by its pure twin."""
    from moldau.wire.records import kernel

    return kernel.NAME


def decoder_in_use() -> Literal["compiled", "pure"]:
    """Whether messages are decoded by the compiled interpreter or by generated Python."""
    from moldau.wire import compiler

    return "compiled" if compiler.HAS_INTERPRETER else "pure"


def library_version(name: str) -> str | None:
    """The installed version of a library, read from its metadata so that nothing heavy is imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def as_table(versions: Versions) -> str:
    """The versions for people, with what to install for each library that is absent."""
    rows = [(name, str(versions[name])) for name in ("moldau", "python", "kernel", "decoder")]
    for name, version in versions["libraries"].items():
        rows.append((name, version or f"absent: pip install 'moldau[{OPTIONAL_LIBRARIES[name]}]'"))
    return "\n".join(f"{name:<9}{value}" for name, value in rows)
