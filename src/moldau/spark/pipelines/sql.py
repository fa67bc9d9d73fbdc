"""What SQL pipelines may say beyond Spark's own statements: where rows come from, and where they go.

Spark's declarative pipelines define sources and sinks in Python only. Three statements of Spark SQL that have
no meaning there are given one, so that a pipeline from topic to topic is one SQL file:

    CREATE TEMPORARY VIEW clicks USING moldau OPTIONS (subscribe 'clicks');          -- rows to read
    CREATE TABLE counts USING moldau OPTIONS (topic 'counts');                       -- where rows go
    CREATE FLOW to_counts AS INSERT INTO counts BY NAME SELECT ... FROM STREAM ...;  -- what goes there
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final


class InvalidSql(Exception):
    """A statement cannot be read; the text names the line."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """A view of what a data source has."""

    name: str
    format: str
    options: Mapping[str, str]
    schema: str | None
    # Whether it is read as a stream.
    is_stream: bool
    line: int


@dataclass(frozen=True, slots=True)
class SinkTable:
    """Something that rows are appended to, and that no query can read."""

    name: str
    format: str
    options: Mapping[str, str]
    line: int


@dataclass(frozen=True, slots=True)
class SinkFlow:
    """A query whose rows go into a sink."""

    name: str
    target: str
    query: str
    line: int


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A file, read: our statements, and the text that is left for Spark, line for line where it was."""

    rest: str
    sources: tuple[SourceView, ...]
    sinks: tuple[SinkTable, ...]
    flows: tuple[SinkFlow, ...]

    @property
    def is_rest_empty(self) -> bool:
        """Whether nothing but comments is left."""
        return not any(True for token in tokens(self.rest))


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a text in quotes or a sign, and where it stands."""

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, however it is written."""
        return self.kind == "word" and self.text.upper() in words

    @property
    def value(self) -> str:
        """What it means: a text without its quotes."""
        if self.kind == "text":
            return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), self.text[1:-1])
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text


_PATTERN: Final = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*.*?\*/)
    | (?P<text>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
    | (?P<quoted>`(?:``|[^`])*`)
    | (?P<word>[A-Za-z_0-9]+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", None: "'"}


def read_sql(text: str, *, sinks: Sequence[str] = (), beside: Sequence[str] = ()) -> SqlFile:
    """Our statements in a file, and what is left of it.

    `sinks` are those that are known from elsewhere; `beside` are the other files of the pipeline.
    """
    sources: list[SourceView] = []
    tables: list[SinkTable] = []
    flows: list[SinkFlow] = []
    ours: list[Token] = []
    statements = list(split(text))
    everything = statements + [statement for other in beside for statement in split(other)]
    for statement in statements:
        found: SourceView | SinkTable | None = _source(text, statement) or _sink(text, statement)
        if isinstance(found, SourceView):
            others = [each for each in everything if each is not statement]
            sources.append(replace(found, is_stream=_is_stream(found.name, others)))
        elif isinstance(found, SinkTable):
            tables.append(found)
        if found is not None:
            ours += statement
    targets = {name.lower() for name in (*sinks, *(table.name for table in tables))}
    for statement in statements:
        flow = _flow(text, statement)
        if flow is not None and flow.target.lower() in targets:
            flows.append(flow)
            ours += statement
    return SqlFile(_without(text, ours), tuple(sources), tuple(tables), tuple(flows))


def tokens(text: str) -> Iterator[Token]:
    """The words of a text, without spaces and comments."""
    for match in _PATTERN.finditer(text):
        kind = match.lastgroup
        assert kind is not None, "every letter is matched by some group"
        if kind in ("space", "comment"):
            continue
        if kind == "sign" and match[0] in "'\"`":
            raise InvalidSql(f"line {_line(text, match.start())}: the quote {match[0]} is never closed.")
        yield Token(kind, match[0], match.start(), match.end())


def split(text: str) -> Iterator[list[Token]]:
    """The statements of a file, each with the semicolon that ends it."""
    statement: list[Token] = []
    for token in tokens(text):
        statement.append(token)
        if token.text == ";" and token.kind == "sign":
            if len(statement) > 1:
                yield statement
            statement = []
    if statement:
        yield statement


# ---------------------------------------------------------------- our statements


@dataclass(slots=True)
class _Reader:
    """A statement, read from left to right."""

    text: str
    statement: Sequence[Token]
    at: int = field(default=0)

    def takes(self, *words: str) -> bool:
        """Go past these words, if they come now."""
        here = self.statement[self.at : self.at + len(words)]
        if len(here) == len(words) and all(
            token.is_word(word) for token, word in zip(here, words, strict=True)
        ):
            self.at += len(words)
            return True
        return False

    def takes_sign(self, sign: str) -> bool:
        token = self._here()
        if token is not None and token.kind == "sign" and token.text == sign:
            self.at += 1
            return True
        return False

    def name(self, what: str) -> str:
        """A name, dotted perhaps."""
        parts = [self._named(what)]
        while self.takes_sign("."):
            parts.append(self._named(what))
        return ".".join(parts)

    def _named(self, what: str) -> str:
        token = self._here()
        if token is None or token.kind not in ("word", "quoted"):
            raise self.wrong(f"{what} is expected")
        self.at += 1
        return token.value

    def parenthesised(self) -> str | None:
        """What stands in parentheses, as it is written."""
        if not self.takes_sign("("):
            return None
        begin, depth = self.statement[self.at - 1].end, 1
        while depth:
            token = self._here()
            if token is None:
                raise self.wrong("a closing parenthesis is missing")
            if token.kind == "sign":
                depth += {"(": 1, ")": -1}.get(token.text, 0)
            self.at += 1
        return self.text[begin : self.statement[self.at - 1].start].strip()

    def options(self) -> dict[str, str]:
        """`OPTIONS (name 'value', name = 'value')`, if it comes now."""
        found: dict[str, str] = {}
        if not self.takes("OPTIONS"):
            return found
        if not self.takes_sign("("):
            raise self.wrong("OPTIONS must be followed by '('")
        while not self.takes_sign(")"):
            token = self._here()
            if token is not None and token.kind == "text":
                self.at += 1
                key = token.value
            else:
                key = self.name("the name of an option")
            self.takes_sign("=")
            found[key] = self._option_value(key)
            if not self.takes_sign(",") and not self._comes(")"):
                raise self.wrong(f"after option {key} a ',' or ')' is expected")
        return found

    def _option_value(self, key: str) -> str:
        sign = "-" if self.takes_sign("-") else ""
        token = self._here()
        if token is None or token.kind not in ("text", "word"):
            raise self.wrong(f"option {key} needs a value in quotes")
        self.at += 1
        return sign + token.value

    def end(self) -> None:
        """Nothing may follow but the semicolon."""
        self.takes_sign(";")
        if self._here() is not None:
            raise self.wrong("the statement should end here")

    def wrong(self, why: str) -> InvalidSql:
        """What to raise where reading has come to."""
        token = self._here()
        place = self.statement[-1].end if token is None else token.start
        seen = "" if token is None else f", not {token.text!r}"
        return InvalidSql(f"line {_line(self.text, place)}: {why}{seen}.")

    def _comes(self, sign: str) -> bool:
        token = self._here()
        return token is not None and token.kind == "sign" and token.text == sign

    def _here(self) -> Token | None:
        return self.statement[self.at] if self.at < len(self.statement) else None


def _source(text: str, statement: Sequence[Token]) -> SourceView | None:
    read = _Reader(text, statement)
    if not read.takes("CREATE"):
        return None
    read.takes("OR", "REPLACE")
    if not (read.takes("TEMPORARY", "VIEW") or read.takes("TEMP", "VIEW")):
        return None
    read.takes("IF", "NOT", "EXISTS")
    name = read.name("the name of a view")
    schema = read.parenthesised()
    if not read.takes("USING"):
        return None
    source_format, options = read.name("a format"), read.options()
    read.end()
    line = _line(text, statement[0].start)
    return SourceView(name, source_format, options, schema or None, is_stream=True, line=line)


def _sink(text: str, statement: Sequence[Token]) -> SinkTable | None:
    read = _Reader(text, statement)
    if not read.takes("CREATE", "TABLE"):
        return None
    read.takes("IF", "NOT", "EXISTS")
    name = read.name("the name of a table")
    if not read.takes("USING"):
        return None
    sink_format, options = read.name("a format"), read.options()
    read.end()
    return SinkTable(name, sink_format, options, _line(text, statement[0].start))


def _flow(text: str, statement: Sequence[Token]) -> SinkFlow | None:
    read = _Reader(text, statement)
    if not read.takes("CREATE", "FLOW"):
        return None
    name = read.name("the name of a flow")
    if not read.takes("AS", "INSERT", "INTO"):
        return None
    target = read.name("the name of a table")
    if not read.takes("BY", "NAME"):
        return None
    rest = [token for token in statement[read.at :] if token.text != ";"]
    if not rest:
        raise read.wrong("a query is expected")
    query = text[rest[0].start : rest[-1].end]
    return SinkFlow(name, target, query, _line(text, statement[0].start))


def _is_stream(name: str, statements: Sequence[Sequence[Token]]) -> bool:
    """Whether `STREAM name` or `STREAM(name)` is read somewhere, or the name nowhere at all."""
    is_mentioned = False
    for statement in statements:
        for number, token in enumerate(statement):
            if token.kind in ("word", "quoted") and token.value.lower() == name.lower():
                is_mentioned = True
                before = [each for each in statement[max(0, number - 2) : number] if each.text != "("]
                if before and before[-1].is_word("STREAM"):
                    return True
    return not is_mentioned


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _without(text: str, cut: Sequence[Token]) -> str:
    """The text with spaces for the tokens, so that what is left keeps its lines."""
    letters = list(text)
    for token in cut:
        for position in range(token.start, token.end):
            if letters[position] != "\n":
                letters[position] = " "
    return "".join(letters)
