"""The name in a certificate, written as Java writes it (RFC 2253), so that principals are those of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

# The attributes that have a keyword; any other is written by its number, with its value in hexadecimal.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# The types of text, each with its encoding.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = ',=+<>#;"\\'
_VERSION_TAG: Final = 0xA0


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER that OpenSSL has accepted, the most specific part first."""
    signed = next(_elements(next(_elements(certificate))[1]))[1]
    fields = [(tag, content) for tag, content, _ in _elements(signed)]
    # The version comes first, unless it is the first version.
    fields = fields[1:] if fields[0][0] == _VERSION_TAG else fields
    _serial, _algorithm, _issuer, _validity, (_, subject), *_ = fields
    parts = [
        "+".join(_attribute(pair) for _, pair, _ in _elements(part)) for _, part, _ in _elements(subject)
    ]
    return ",".join(reversed(parts))


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements in a piece of DER, one after the other: tag, content, and all its bytes."""
    position = 0
    while position < len(data):
        start, size = position + 2, data[position + 1]
        if size & 0x80:
            size_end = start + (size & 0x7F)
            start, size = size_end, int.from_bytes(data[start:size_end], "big")
        yield data[position], data[start : start + size], data[position : start + size]
        position = start + size


def _attribute(pair: bytes) -> str:
    (_, kind, _), (tag, content, value) = _elements(pair)
    number = _object_identifier(kind)
    if number not in _KEYWORDS or tag not in _ENCODINGS:
        return f"{_KEYWORDS.get(number, number)}=#{value.hex()}"
    return f"{_KEYWORDS[number]}={_escaped(content.decode(_ENCODINGS[tag], 'replace'))}"


def _object_identifier(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    # The first number holds two: 40 times the one, which is at most 2, plus the other.
    root = min(numbers[0] // 40, 2)
    return ".".join(map(str, (root, numbers[0] - 40 * root, *numbers[1:])))


def _escaped(text: str) -> str:
    marked = "".join(f"\\{char}" if char in _ESCAPED else char for char in text).replace("\0", "\\00")
    inner = marked.strip(" \r")
    lead = len(marked) - len(marked.lstrip(" \r"))
    ends = marked[:lead], marked[lead + len(inner) :]
    before, after = ("".join(f"\\{char}" for char in end) for end in ends)
    return f"{before}{inner}{after}"
