"""Requests of every API and version that make some sense, little sense or none, drawn from a seed.

What is drawn is mostly well formed, so that it gets past the decoder and into the handlers: names that exist
and names that cannot, numbers at the ends of their ranges, batches that are sound and batches that are nearly
so. Some of it is then damaged as bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from clients.raw_client import batch_of
from wire.contents import fields_of

from moldau.model.ids import Uuid
from moldau.wire.compiler import ArrayOf
from moldau.wire.messages import REQUESTS, ApiKey, request_header_version
from moldau.wire.messages.header import RequestHeader
from moldau.wire.records.batch import encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record
from moldau.wire.types import RECORDS, STRING, Fixed, Sized

_RANGES: Final = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "i": (-(2**31), 2**31 - 1),
    "q": (-(2**63), 2**63 - 1),
    "H": (0, 2**16 - 1),
    "I": (0, 2**32 - 1),
}
_ODD_NAMES: Final = (
    *("", ".", "..", "a/b", "a" * 249, "a" * 250, "ü", "a\x00b", "\n", "{}%s"),
    "__consumer_offsets",
)
_ODD_TEXTS: Final = (
    *("", "0", "-1", "9" * 400, "nan", "compact", "delete", "(", "(a*)*b", "1", "true"),
    *("\x00", "é" * 99),
)
_SETTINGS: Final = (
    *("retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "compression.type"),
    *("message.timestamp.type", "min.cleanable.dirty.ratio", "moldau.durability"),
)
_ODD_FLOATS: Final = (0.0, -1.0, 1.0, 1e308, float("inf"), float("-inf"), float("nan"), 1e-300)
_ODD_LENGTHS: Final = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0")
_PATTERNS: Final = ("t.*", "(", "(a|b)*", ".{1000}{1000}", "[", "\\", "(?=x)", "a" * 999)
# Nobody has to wait longer than this for an answer that is to come at all.
WAIT_MS_MAX: Final = 300


class Fuzz:
    """Draws requests; `topics` are the topics that there are, with their ids."""

    def __init__(self, seed: object, topics: Sequence[tuple[str, Uuid]]) -> None:
        self.random = random.Random(str(seed))
        self._topics = topics

    def frame(self, api_key: ApiKey, version: int, correlation_id: int) -> tuple[bytes, bool]:
        """The content of a frame, and whether it is as it was encoded."""
        content = self._header(api_key, version, correlation_id) + self.body(api_key, version)
        if self.random.random() < 0.75:
            return content, True
        return self._damaged(content), False

    def _header(self, api_key: ApiKey, version: int, correlation_id: int) -> bytes:
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.random.choice((None, "", "fuzz", "f" * 300)),
        )
        return header.encode(request_header_version(api_key, version))

    def body(self, api_key: ApiKey, version: int) -> bytes:
        """A request in its bytes."""
        return bytes(self._struct(REQUESTS[api_key], version, depth=0).encode(version))

    def _damaged(self, content: bytes) -> bytes:
        chance = self.random
        data = bytearray(content)
        # The correlation id and the API stay, so that a reply can be told from another.
        first = 8
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(first, len(data) + 1)
            match chance.randrange(4):
                case 0:
                    del data[at:]
                case 1:
                    data[at : at + 1] = chance.randbytes(1)
                case 2:
                    data[at : at + 4] = chance.choice(
                        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0")
                    )
                case _:
                    data[at:at] = chance.choice((b"\x00", b"\x01", b"\xff\xff\xff\xff\x0f", bytes(40)))
        return bytes(data)

    # ------------------------------------------------------------ contents

    def _struct(self, kind: type[Any], version: int, *, depth: int) -> Any:
        contents: dict[str, Any] = {}
        topic = self.random.choice(self._topics)
        for name, wire_type, is_nullable in fields_of(kind, version):
            if is_nullable and self.random.random() < 0.2:
                contents[name] = None
            else:
                contents[name] = self._value(name, wire_type, version, topic=topic, depth=depth)
        return kind(**contents)

    def _value(self, name: str, wire_type: Any, version: int, *, topic: tuple[str, Uuid], depth: int) -> Any:
        chance = self.random
        match wire_type:
            case Fixed(letter="?"):
                return chance.random() < 0.5
            case Fixed(letter="d"):
                return chance.choice(
                    (0.0, -1.0, 1.0, 1e308, float("inf"), float("-inf"), float("nan"), 1e-300)
                )
            case Fixed(letter="16s"):
                return Uuid(
                    chance.choice((topic[1], topic[1], bytes(16), bytes(15) + b"\x01", chance.randbytes(16)))
                )
            case Fixed(letter=letter):
                return self._number(name, letter)
            case Sized():
                if wire_type is RECORDS:
                    return self._records()
                return (
                    self._text(name, topic[0])
                    if wire_type is STRING
                    else chance.randbytes(chance.choice((0, 1, 30)))
                )
            case ArrayOf(element=element):
                count = chance.choice((0, 1, 1, 1, 2, 3)) if depth < 4 else 1
                return [
                    self._value(name, element, version, topic=topic, depth=depth + 1) for _ in range(count)
                ]
        return self._struct(wire_type, version, depth=depth + 1)

    def _number(self, name: str, letter: str) -> int:
        chance = self.random
        lowest, highest = _RANGES[letter]
        if name.endswith(("wait_ms", "timeout_ms")) and chance.random() < 0.8:
            return chance.randrange(WAIT_MS_MAX)
        choices: Sequence[Callable[[], int]] = (
            lambda: chance.randrange(-2, 5),
            lambda: chance.choice((2, 4, 8, 16, 32)),
            lambda: chance.choice((lowest, highest, highest - 1, lowest + 1)),
            lambda: chance.randrange(lowest, highest + 1),
        )
        drawn = chance.choices(choices, weights=(8, 2, 1, 1))[0]()
        return min(max(drawn, lowest), highest)

    def _text(self, name: str, topic: str) -> str:
        chance = self.random
        if "regex" in name:
            return chance.choice(_PATTERNS)
        if chance.random() < 0.25:
            return chance.choice((*_ODD_NAMES, *_ODD_TEXTS))
        if name in ("name", "config_name", "configuration_keys") and chance.random() < 0.3:
            return chance.choice(_SETTINGS)
        if "group" in name or "key" in name:
            return f"group-{chance.randrange(3)}"
        if "member" in name or "instance" in name:
            return chance.choice(("", f"member-{chance.randrange(3)}"))
        if "value" in name:
            return chance.choice(_ODD_TEXTS)
        if "protocol" in name or "assignor" in name:
            return chance.choice(("consumer", "range", "uniform"))
        return topic

    def _records(self) -> bytes:
        chance = self.random
        codec = chance.choice(list(Codec))
        records = [
            Record(
                number,
                chance.choice((-1, 0, 10**12, 2**62)),
                chance.choice((None, b"", b"key")),
                bytes(number),
            )
            for number in range(chance.randrange(1, 4))
        ]
        match chance.randrange(5):
            case 0:
                batch = batch_of(b"sound")
            case 1:
                batch = encode_batch(records, codec=codec)
            case 2:
                batch = encode_batch(
                    records,
                    codec=codec,
                    producer_id=chance.choice((0, 1, 1000, 2**63 - 1)),
                    producer_epoch=chance.choice((0, 1, 32767)),
                    base_sequence=chance.choice((0, 1, 2**31 - 1)),
                )
            case 3:
                batch = batch_of(b"one") + batch_of(b"two")
            case _:
                batch = chance.randbytes(chance.randrange(120))
        if chance.random() < 0.3 and batch:
            mutable = bytearray(batch)
            mutable[chance.randrange(len(mutable))] = chance.randrange(256)
            return bytes(mutable)
        return bytes(batch)
