"""The kinds of messages, each encoded on its own in one of its versions."""

from __future__ import annotations

from typing import Final, Self

from moldau.wire.compiler import Chunk, decoder, encoder
from moldau.wire.types import Struct

# A byte or two of a request can stand for an object of a hundred bytes, and for some microseconds of the one
# loop. No client asks for so much at once, and a follower's largest fetch has an element for each partition.
REQUEST_ELEMENTS_MAX: Final = 100_000
HEADER_ELEMENTS_MAX: Final = 1_000


class Message(Struct):
    """A struct that can be written and read by itself."""

    def encode(self, version: int) -> bytes:
        """The bytes of this message in `version`; record fields are copied into them."""
        chunks: list[Chunk] = []
        self.encode_to(chunks, version)
        return b"".join(chunks)  # type: ignore[arg-type]  # a FileSlice here is a bug, and join says so

    def encode_to(self, chunks: list[Chunk], version: int) -> None:
        """Append the bytes of this message to `chunks`; record fields are passed on, not copied."""
        encoder(type(self), version)(self, chunks)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """The message that `data` starts with; what follows it is ignored, as Kafka ignores it."""
        if isinstance(data, memoryview):
            data = bytes(data)
        return decoder(cls, version)(data, 0, len(data))[0]


class Request(Message):
    """The body of a request."""

    elements_max = REQUEST_ELEMENTS_MAX


class Response(Message):
    """The body of a response."""


class Header(Message):
    """What stands before the body of a request or response."""

    elements_max = HEADER_ELEMENTS_MAX


class Data(Message):
    """A message that travels inside another one, in a control record or in a file."""


class CoordinatorKey(Message):
    """The key of a record in a coordinator's log."""


class CoordinatorValue(Message):
    """The value of a record in a coordinator's log."""


class MetadataRecord(Message):
    """A record of the cluster metadata log."""
