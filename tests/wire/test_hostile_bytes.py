"""Bytes from anywhere: a decoder gives a message or says MalformedMessage, in bounded time and memory."""

import gc
import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest
from wire.contents import EVERY_MESSAGE, EVERY_VERSION, filled

from moldau.model.errors import MalformedMessage
from moldau.wire import messages
from moldau.wire.compiler import DecoderOf, decoder, encode_uvarint, python_decoder
from moldau.wire.framing import Receiver, Request, read_request
from moldau.wire.message import HEADER_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, Message
from moldau.wire.messages.groups import DeletableGroupResult, DeleteGroupsResponse

# The largest object that the fewest bytes can stand for: a struct of three bytes with a list in it.
BYTES_PER_BYTE_MAX = 48
FIXED_BYTES_MAX = 100_000
HOSTILE_LENGTHS = [
    bytes.fromhex(text)
    for text in (
        "ffffffff",
        "7fffffff",
        "80000000",
        "fffffffe",
        "7fff",
        "8000",
        "ffffffff07",
        "ffffffff0f",
        "8080808080",
    )
]


def hostile(valid: bytes, rng: random.Random) -> Iterator[bytes]:
    """Bytes that are nearly right, and bytes that are not at all."""
    for _ in range(3):
        yield rng.randbytes(rng.randrange(200))
        yield valid[: rng.randrange(len(valid) + 1)]
        yield b"\x00" * rng.randrange(100)
        yield b"\x01" * rng.randrange(100)
    for _ in range(8):
        mutated = bytearray(valid)
        for _ in range(rng.randrange(1, 4)):
            if mutated:
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        yield bytes(mutated)
    for length in HOSTILE_LENGTHS:
        at = rng.randrange(len(valid) + 1)
        yield valid[:at] + length + valid[at + len(length) :]


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_a_decoder_says_malformed_and_nothing_else(name: str, version: int) -> None:
    kind = messages.BY_NAME[name]
    rng = random.Random(f"{name} {version}")
    for data in hostile(filled(kind, version).encode(version), rng):
        read_or_refuse(kind, version, data)


def read_or_refuse(kind: type[Message], version: int, data: bytes) -> None:
    try:
        message = kind.decode(data, version)
    except MalformedMessage:
        return
    # What was accepted is a message like any other.
    assert kind.decode(message.encode(version), version) == message


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_a_message_that_ends_too_early_is_malformed(name: str) -> None:
    kind = messages.BY_NAME[name]
    version = kind.declaration.versions.highest
    data = filled(kind, version).encode(version)
    for end in range(0, len(data), 1 + len(data) // 50):
        with pytest.raises(MalformedMessage):
            kind.decode(data[:end], version)


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_memory_is_bounded_by_what_was_sent(name: str) -> None:
    kind = messages.BY_NAME[name]
    version = kind.declaration.versions.highest
    rng = random.Random(name)
    kind.decode(filled(kind, version).encode(version), version)  # compiles the decoder
    # Runs of small bytes are read as many tiny elements; a huge count is refused before anything is made.
    attacks = [bytes([byte]) * 3000 for byte in (0, 1, 2, 3)]
    attacks += rng.sample([*hostile(filled(kind, version).encode(version), rng)], 5)
    gc.collect()
    for data in attacks:
        tracemalloc.start()
        with suppress(MalformedMessage):
            kind.decode(data, version)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= FIXED_BYTES_MAX + BYTES_PER_BYTE_MAX * len(data), (peak, len(data))


def test_memory_is_bounded_for_the_worst_that_we_know() -> None:
    # A reassignment of very many topics without a name or partitions: three bytes each.
    count = 30_000
    data = bytes(4) + encode_uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    kind = messages.BY_NAME["AlterPartitionReassignmentsRequest"]
    kind.decode(filled(kind, 0).encode(0), 0)
    tracemalloc.start()
    try:
        message = kind.decode(data, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message.encode(0) == data
    assert peak <= BYTES_PER_BYTE_MAX * len(data), peak / len(data)


def too_many_elements() -> Iterator[tuple[type[Message], int, bytes]]:
    """One list, lists in lists, and tags that nobody knows: one element more than a request may have."""
    many = REQUEST_ELEMENTS_MAX + 1
    find = messages.BY_NAME["FindCoordinatorRequest"]
    yield find, 4, b"\0" + encode_uvarint(many + 1) + b"\2g" * many + b"\0"
    produce = messages.BY_NAME["ProduceRequest"]
    topics = (b"\0\1t" + struct.pack(">i", 1) + struct.pack(">ii", 0, -1)) * (many // 2 + 1)
    yield produce, 3, struct.pack(">hhii", -1, -1, 1000, many // 2 + 1) + topics
    yield find, 4, b"\0\1" + encode_uvarint(many) + b"\x7f\0" * many
    header = messages.BY_NAME["RequestHeader"]
    many = HEADER_ELEMENTS_MAX + 1
    yield header, 2, struct.pack(">hhih", 3, 12, 7, -1) + encode_uvarint(many) + b"\x7f\0" * many


@pytest.mark.parametrize("build", [decoder, python_decoder], ids=["default", "python"])
def test_a_request_has_only_so_many_elements(build: DecoderOf) -> None:
    for kind, version, data in too_many_elements():
        with pytest.raises(MalformedMessage, match=f"more than {kind.elements_max} elements in all"):
            build(kind, version)(data, 0, len(data))
    # One less is fine.
    count = REQUEST_ELEMENTS_MAX
    data = b"\0" + encode_uvarint(count + 1) + b"\2g" * count + b"\0"
    request, end = build(messages.BY_NAME["FindCoordinatorRequest"], 4)(data, 0, len(data))
    assert (len(request.coordinator_keys), end) == (count, len(data))  # type: ignore[attr-defined]


@pytest.mark.parametrize("build", [decoder, python_decoder], ids=["default", "python"])
def test_a_response_may_be_of_any_size(build: DecoderOf) -> None:
    groups = [DeletableGroupResult(group_id="g", error_code=0)] * (REQUEST_ELEMENTS_MAX + 1)
    data = DeleteGroupsResponse(throttle_time_ms=0, results=groups).encode(2)
    response, _ = build(DeleteGroupsResponse, 2)(data, 0, len(data))
    assert len(response.results) == len(groups)


def test_a_connection_says_malformed_and_nothing_else() -> None:
    rng = random.Random(1)
    valid = [
        struct.pack(">hhi", kind.declaration.key or 0, version, 7)
        + b"\xff\xff\x00"
        + filled(kind, version).encode(version)
        for kind in messages.REQUESTS.values()
        for version in [kind.declaration.versions.lowest]
    ]
    shared = bytearray(500)
    for body in valid:
        for data in hostile(body, rng):
            receiver = Receiver(shared, frame_bytes_max=10_000)
            stream = struct.pack(">i", len(data)) + data + rng.randbytes(rng.randrange(50))
            with suppress(MalformedMessage):
                feed(receiver, stream)
            assert receiver.owned_bytes <= max(4096, 2 * len(stream))


def feed(receiver: Receiver, stream: bytes) -> None:
    while stream:
        room = receiver.buffer_to_fill()
        count = min(len(room), len(stream))
        room[:count] = stream[:count]
        stream = stream[count:]
        for frame in receiver.filled(count):
            request = read_request(frame)
            if isinstance(request, Request):
                request.body()
