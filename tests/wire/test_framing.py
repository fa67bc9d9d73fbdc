"""Bytes in, whole requests out, replies in order: whatever the network does to the bytes."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.wire.compiler import Chunk
from moldau.wire.framing import (
    Frame,
    Receiver,
    Replies,
    Request,
    Requests,
    Spares,
    UnservedRequest,
    encode_request,
    encode_response,
    read_request,
)
from moldau.wire.messages import ApiKey
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
LIMIT = 100 * 1024 * 1024


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def read(receiver: Receiver, data: bytes) -> list[bytes]:
    """Hand over `data` as reads do that take what there is room for."""
    frames = []
    while data:
        room = receiver.buffer_to_fill()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        frames += [bytes(frame.buffer[frame.start : frame.end]) for frame in receiver.filled(count)]
        data = data[count:]
    return frames


def frames_of(receiver: Receiver, data: bytes) -> list[Frame]:
    """The frames themselves, of which only the last may still hold what it held."""
    frames: list[Frame] = []
    while data:
        room = receiver.buffer_to_fill()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += receiver.filled(count)
        data = data[count:]
    return frames


def joined(chunks: list[Chunk]) -> bytes:
    return b"".join(chunks)  # type: ignore[arg-type]


def whole(data: bytes) -> Frame:
    return Frame(data, 4, len(data), is_shared=False)


# ---------------------------------------------------------------- frames


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.lists(st.integers(1, 200), max_size=40),
    st.integers(5, 700),
    st.none() | st.builds(Spares),
)
def test_the_network_may_cut_a_stream_anywhere(
    bodies: list[bytes], cuts: list[int], shared_bytes: int, spares: Spares | None
) -> None:
    receiver = Receiver(bytearray(shared_bytes), frame_bytes_max=300, spares=spares)
    stream = framed(*bodies)
    frames = []
    for cut in cuts:
        frames += read(receiver, stream[:cut])
        stream = stream[cut:]
    frames += read(receiver, stream)
    assert frames == bodies
    assert receiver.owned_bytes == 0


def test_connections_share_a_buffer_and_keep_only_what_is_unfinished() -> None:
    shared = bytearray(64)
    one, other = Receiver(shared, frame_bytes_max=LIMIT), Receiver(shared, frame_bytes_max=LIMIT)
    assert read(one, framed(b"first") + framed(b"second")[:7]) == [b"first"]
    assert read(other, framed(b"elsewhere")) == [b"elsewhere"]
    assert other.owned_bytes == 0
    assert read(one, framed(b"second")[7:]) == [b"second"]
    assert one.owned_bytes == 0


def test_a_frame_that_arrives_whole_is_not_copied() -> None:
    shared = bytearray(64)
    receiver = Receiver(shared, frame_bytes_max=LIMIT)
    data = framed(b"one", b"two")
    receiver.buffer_to_fill()[: len(data)] = data
    frames = list(receiver.filled(len(data)))
    assert frames == [Frame(shared, 4, 7, True), Frame(shared, 11, 14, True)]
    assert all(frame.buffer is shared for frame in frames)


def test_a_read_never_takes_bytes_of_the_next_frame_into_private_memory() -> None:
    receiver = Receiver(bytearray(64), frame_bytes_max=LIMIT)
    read(receiver, framed(b"x" * 50)[:30])
    assert len(receiver.buffer_to_fill()) == 54 - 30


def test_a_size_that_lies_allocates_nothing_before_the_bytes_come() -> None:
    receiver = Receiver(bytearray(1024), frame_bytes_max=LIMIT)
    tracemalloc.start()
    try:
        read(receiver, struct.pack(">i", LIMIT) + b"a few bytes")
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()
    received = 15
    for _ in range(200):
        read(receiver, b"x" * 1000)
        received += 1000
        assert receiver.owned_bytes <= max(4096, 2 * received)


def test_the_frames_of_a_trusted_peer_do_not_move_while_they_grow() -> None:
    receiver = Receiver(bytearray(64), frame_bytes_max=LIMIT, trusted_bytes=10_000)
    read(receiver, struct.pack(">i", 9_000) + b"x" * 40)
    assert receiver.owned_bytes == 9_004
    larger = Receiver(bytearray(64), frame_bytes_max=LIMIT, trusted_bytes=10_000)
    read(larger, struct.pack(">i", 50_000) + b"x" * 40)
    assert larger.owned_bytes == 10_000


def test_large_frames_leave_their_memory_to_those_of_any_connection() -> None:
    spares, shared = Spares(), bytearray(64)
    one, other = (Receiver(shared, frame_bytes_max=LIMIT, spares=spares) for _ in range(2))
    large, smaller = framed(b"a" * 9_000), framed(b"b" * 5_000)
    (first,) = frames_of(one, large)
    (second,) = frames_of(other, smaller)
    (third,) = frames_of(one, large)
    assert first.buffer is second.buffer is third.buffer
    assert first.is_shared, "whoever keeps the frame must copy it"
    assert (second.end - second.start, third.end - third.start) == (5_000, 9_000)


def test_frames_that_come_at_the_same_time_have_memory_of_their_own() -> None:
    spares, shared = Spares(), bytearray(64)
    one, other = (Receiver(shared, frame_bytes_max=LIMIT, spares=spares) for _ in range(2))
    frames_of(one, framed(b"a" * 9_000))
    assert read(one, framed(b"b" * 9_000)[:5_000]) == []
    assert one.owned_bytes == 9_004
    assert read(other, framed(b"c" * 8_000)) == [b"c" * 8_000]
    assert read(one, framed(b"b" * 9_000)[5_000:]) == [b"b" * 9_000]


def test_little_memory_is_left_for_others_and_of_that_the_largest() -> None:
    spares = Spares()
    for size in (3_000_000, 10, 20, 2_000_000, 30, 40, 50):
        spares.give(bytearray(size))
    kept = [len(spares.take(1) or b"") for _ in range(5)]
    assert kept == [30, 40, 50, 2_000_000, 0]


@pytest.mark.honours("socket.request.max.bytes")
def test_a_frame_may_be_as_large_as_the_setting_says_and_no_larger() -> None:
    assert read(Receiver(bytearray(16), frame_bytes_max=100), framed(b"x" * 100)) == [b"x" * 100]
    for data in (framed(b"x" * 101), struct.pack(">i", 101), struct.pack(">i", -1)):
        for shared_bytes in (5, 1000):
            with pytest.raises(MalformedMessage, match="at most 100 are allowed"):
                read(Receiver(bytearray(shared_bytes), frame_bytes_max=100), data)


def test_frames_before_a_wrong_one_are_still_given() -> None:
    receiver = Receiver(bytearray(64), frame_bytes_max=100)
    data = framed(b"good") + struct.pack(">i", -5)
    receiver.buffer_to_fill()[: len(data)] = data
    frames = receiver.filled(len(data))
    assert next(frames).end == 8
    with pytest.raises(MalformedMessage):
        next(frames)


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_request_is_read_with_its_header(version: int, client_id: str | None) -> None:
    data = joined(encode_request(HEARTBEAT, version=version, correlation_id=7, client_id=client_id))
    request = read_request(whole(data))
    assert isinstance(request, Request)
    assert (request.api_key, request.version) == (ApiKey.HEARTBEAT, version)
    assert (request.correlation_id, request.client_id) == (7, client_id)
    assert request.body() == HEARTBEAT


@pytest.mark.parametrize(
    ("api_key", "version"), [(18, 99), (0, 2), (1, 19), (4, 0), (22, 6), (-1, 0), (93, 0), (18, -1)]
)
def test_a_request_that_we_do_not_speak_is_data_and_no_error(api_key: int, version: int) -> None:
    frame = whole(framed(struct.pack(">hhi", api_key, version, 5) + b"whatever"))
    assert read_request(frame) == UnservedRequest(api_key, version, 5)


@pytest.mark.parametrize(
    "data", [b"", b"\0\x12\0\0\0\0\0", b"\0\x0c\0\0\0\0\0\1", b"\0\x0c\0\0\0\0\0\1\0\5abc"]
)
def test_a_header_that_is_cut_short_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_request(whole(framed(data)))


def test_records_of_a_request_are_views_into_the_frame() -> None:
    partition = PartitionProduceData(index=0, records=b"batch")
    topic = TopicProduceData(name="t", partition_data=[partition])
    produce = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[topic])
    data = bytearray(joined(encode_request(produce, version=9, correlation_id=0, client_id="c")))
    request = read_request(Frame(data, 4, len(data), is_shared=True))
    assert isinstance(request, Request)
    body = request.body()
    assert isinstance(body, ProduceRequest)
    records = body.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data


# ---------------------------------------------------------------- replies


@given(st.permutations(range(6)), st.integers(0, 5))
def test_replies_leave_in_the_order_of_the_requests(order: list[int], unanswered: int) -> None:
    replies = Replies()
    places = [replies.expect() for _ in range(6)]
    sent: list[Chunk] = []
    for done, number in enumerate(order):
        places[number].complete([] if number == unanswered else [b"%d" % number])
        sent += replies.sendable()
        complete = [n for n in range(6) if set(range(n + 1)) <= set(order[: done + 1])]
        assert sent == [b"%d" % n for n in complete if n != unanswered]
    assert len(replies) == 0


def test_a_request_is_answered_once() -> None:
    place = Replies().expect()
    place.complete([])
    with pytest.raises(AssertionError):
        place.complete([])


class Slice:
    """Bytes that are in a file."""

    def __len__(self) -> int:
        return 1000


def test_a_reply_passes_records_on_and_joins_the_rest() -> None:
    in_file, large = Slice(), bytes(100_000)
    contents: list[bytes | Slice] = [b"small", in_file, large]
    partitions = [
        PartitionData(
            partition_index=i, error_code=0, high_watermark=9, aborted_transactions=None, records=records
        )
        for i, records in enumerate(contents)
    ]
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    chunks = encode_response(
        FetchResponse(throttle_time_ms=0, responses=[topic]), api_key=1, version=12, correlation_id=3
    )
    head, first, middle, second, tail = chunks
    assert first is in_file
    assert second is large
    assert isinstance(head, bytes) and b"small" in head
    assert struct.unpack_from(">i", head)[0] == sum(map(len, chunks)) - 4
    assert len(middle) < 64 and len(tail) < 64


# ---------------------------------------------------------------- the client's side


def test_responses_are_matched_to_requests_in_order() -> None:
    requests = Requests("client")
    for version in (0, 4):
        sent = read_request(whole(joined(requests.encode(HEARTBEAT, version))))
        assert isinstance(sent, Request)
    for correlation_id, version in enumerate((0, 4)):
        reply = HeartbeatResponse(error_code=correlation_id)
        data = encode_response(reply, api_key=12, version=version, correlation_id=correlation_id)
        assert requests.match(whole(joined(data))) == reply
    assert len(requests) == 0


def test_a_response_to_another_request_is_malformed() -> None:
    requests = Requests(None)
    reply = joined(encode_response(HeartbeatResponse(error_code=0), api_key=12, version=4, correlation_id=5))
    with pytest.raises(MalformedMessage, match="to no request"):
        requests.match(whole(reply))
    requests.encode(HEARTBEAT, 4)
    with pytest.raises(MalformedMessage, match="to request 5, not to 0"):
        requests.match(whole(reply))


def test_a_request_that_is_not_answered_is_not_waited_for() -> None:
    requests = Requests(None)
    produce = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[])
    requests.encode(produce, 9, is_answered=False)
    requests.encode(HEARTBEAT, 4)
    assert len(requests) == 1
    reply = encode_response(HeartbeatResponse(error_code=0), api_key=12, version=4, correlation_id=1)
    assert requests.match(whole(joined(reply))) == HeartbeatResponse(error_code=0)


def test_a_broker_that_is_too_old_says_so_in_version_0() -> None:
    requests = Requests(None)
    requests.encode(ApiVersionsRequest(client_software_name="m", client_software_version="1"), 4)
    reply = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    data = encode_response(reply, api_key=18, version=0, correlation_id=0)
    assert requests.match(whole(joined(data))) == reply
