"""A server's settings in TOML: names as in properties, where a table is what several begin with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Final

from moldau.node.properties import Written

_HEADER: Final = "["


class MalformedToml(ValueError):
    """A text that is no TOML, or a value that no setting can have; the text says where."""


def read_toml(text: str) -> dict[str, Written]:
    """Names and values, and the line of each; a list becomes what it is in properties, items with commas."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MalformedToml(str(error)) from error
    lines = _lines(text)
    written: dict[str, Written] = {}
    for name, value in _joined(whole):
        if name in written:
            raise MalformedToml(f"{name} is given twice")
        written[name] = Written(_text(name, value), lines[name])
    return written


def _joined(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """All values of a table and the tables in it, by their names joined with dots."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _joined(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list():
            return ",".join(_text(name, item) for item in value)
        case _:
            raise MalformedToml(f"{name} must be a text, a number, true or false, or a list of these")


def _lines(text: str) -> dict[str, int]:
    """The line in which each value begins, which the library does not tell.

    Every statement of TOML can be read by itself: so a statement ends with the first line after which there
    is something that can be read.
    """
    lines: dict[str, int] = {}
    statement, began, prefix = "", 0, ""
    for number, line in enumerate(text.split("\n"), start=1):
        began = began if statement else number
        statement += f"{line}\n"
        try:
            table = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith(_HEADER):
            prefix = _name_of_header(table)
        else:
            lines |= {f"{prefix}{name}": began for name, _ in _joined(table)}
        statement = ""
    return lines


def _name_of_header(table: Mapping[str, object]) -> str:
    prefix = ""
    while table:
        ((name, inner),) = table.items()
        prefix += f"{name}."
        table = inner if isinstance(inner, dict) else {}
    return prefix
