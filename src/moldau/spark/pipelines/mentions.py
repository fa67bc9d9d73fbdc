"""What a pipeline's files say about topics, read without running them, to look before Spark is started.

Only what is written out can be seen; what a program puts together is checked when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.spark.pipelines.hooks import FORMAT
from moldau.spark.pipelines.projects import parse_python
from moldau.spark.pipelines.sql import InvalidSql, SinkTable, SourceView, read_sql

_SERVERS: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Mentions:
    """What was found."""

    has_moldau: bool = False
    # Whether the files name a cluster of their own, which need not be the one that is asked.
    has_servers: bool = False
    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


def mentions(files: Iterable[Path]) -> Mentions:
    """All that the files say; InvalidProject and InvalidSql tell what cannot be read."""
    options: list[tuple[str, str]] = []
    formats: set[str] = set()
    for path in files:
        if path.suffix == ".py":
            for name, value in _calls(parse_python(path)):
                if name == "format":
                    formats.add(value)
                else:
                    options.append((name, value))
        elif path.suffix == ".sql":
            try:
                found = read_sql(path.read_text())
            except InvalidSql as error:
                raise InvalidSql(f"{path.name}, {error}") from None
            tables: list[SourceView | SinkTable] = [*found.sources, *found.sinks]
            for table in tables:
                formats.add(table.format)
                options += [(name.lower(), value) for name, value in table.options.items()]
    read = [topic.strip() for name, value in options if name == "subscribe" for topic in value.split(",")]
    written = [value for name, value in options if name == "topic"]
    return Mentions(
        has_moldau=FORMAT in formats,
        has_servers=any(name == _SERVERS for name, _ in options),
        read=tuple(sorted({topic for topic in read if topic})),
        written=tuple(sorted(set(written))),
    )


def _calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Formats and options in calls: `.format("moldau")`, `.option("subscribe", "clicks")` and the like."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="option"),
                args=[ast.Constant(value=str(name)), ast.Constant(value=str(value))],
            ):
                yield name.lower(), value
            case ast.Call(func=ast.Attribute(attr="format"), args=[ast.Constant(value=str(value))]):
                yield "format", value
            case ast.Call(
                func=ast.Attribute(attr="create_sink") | ast.Name(id="create_sink"),
                args=arguments,
                keywords=keywords,
            ):
                yield from _sink([*arguments, *(keyword.value for keyword in keywords)])
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    match keyword:
                        case ast.keyword(arg=str(name), value=ast.Constant(value=str(value))):
                            yield name.lower(), value
                        case ast.keyword(arg=None, value=ast.Dict() as given):
                            yield from _dict(given)


def _sink(arguments: list[ast.expr]) -> Iterator[tuple[str, str]]:
    match arguments:
        case [_, ast.Constant(value=str(value)), *rest]:
            yield "format", value
            for each in rest:
                if isinstance(each, ast.Dict):
                    yield from _dict(each)


def _dict(given: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(given.keys, given.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Constant(value=str(text)):
                yield name.lower(), text
