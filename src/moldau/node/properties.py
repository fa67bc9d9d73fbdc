"""Java's .properties format, in which a server's settings are written down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BLANKS: Final = " \t\f"
_COMMENTS: Final = "#!"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A name ends at the first separator that no backslash stands before.
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class MalformedProperties(ValueError):
    """A line that is not in the format; the text begins with its number."""


class Written(NamedTuple):
    """A value as a file has it, and the number of the line where it begins."""

    text: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; of a name that is given twice the last value counts, as in Java."""
    return {name: written.text for name, written in read_properties(text).items()}


def read_properties(text: str) -> dict[str, Written]:
    """The same, with the line of each value."""
    properties = {}
    for number, line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None, "an empty name matches too"
        name = match[0]
        if not name:
            raise MalformedProperties(f"line {number}: there is no name before {line[:1]!r}")
        value = line[_end_of_separator(line, len(name)) :]
        properties[_unescaped(name, number)] = Written(_unescaped(value, number), number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what continues them, and the number of the first; without comments and blank lines."""
    # Not str.splitlines, which also takes form feeds and other characters for the end of a line.
    lines = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    for number, raw in lines:
        line = raw.lstrip(_BLANKS)
        if not line or line[0] in _COMMENTS:
            continue
        while _is_continued(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(_BLANKS)
        yield number, line


def _is_continued(line: str) -> bool:
    # An even number of backslashes at the end are escaped ones.
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end_of_separator(line: str, start: int) -> int:
    match = _SEPARATOR.match(line, start)
    assert match is not None, "an empty separator matches too"
    return match.end()


def _unescaped(text: str, number: int) -> str:
    def meaning(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code == "u":
            raise MalformedProperties(f"line {number}: \\u must be followed by four hexadecimal digits")
        return _ESCAPES.get(code, code)

    plain = _ESCAPE.sub(meaning, text)
    try:
        # Two escapes may stand for one character outside of Java's 16 bits.
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MalformedProperties(f"line {number}: half a surrogate pair stands for no character") from None
