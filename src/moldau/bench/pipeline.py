"""Prepared requests through plain sockets, as fast as sockets go.

A client that makes its requests while the clock runs measures itself. Here the frames of one cycle lie ready
in one piece of memory, and are sent from there over and over, many of them in one call if they are small; of
the replies only the sizes are looked at until the clock has stopped.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self, TypeVar

from moldau.bench.payloads import Batches, WrongPayload, check_batches
from moldau.model.errors import ErrorCode
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.records.header import Buffer, iter_headers

# The last versions in which topics go by their names, which every broker of today serves.
PRODUCE_VERSION = 12
FETCH_VERSION = 12
CLIENT_ID = "moldau-bench"
ACKS_ALL, ACKS_LEADER = -1, 1

_SIZE = struct.Struct(">i")
_SEND_BYTES_MAX = 256 * 1024
_RECEIVE_BYTES = 256 * 1024
_CYCLE_BYTES_MAX = 4 * 1024 * 1024
_REQUEST_TIMEOUT_MS = 30_000

R = TypeVar("R", bound=Response)


class Refused(Exception):
    """The broker answered with an error, out of order, or not in time."""


@dataclass(frozen=True, slots=True)
class Reel:
    """Frames of one length, back to back, to be sent in a cycle."""

    data: bytes
    frames: int

    @property
    def frame_bytes(self) -> int:
        """The length of each, with its size field."""
        return len(self.data) // self.frames


def produce_reel(topic: str, sent: Batches, *, acks: int, partition: int = 0) -> Reel:
    """Produce requests with a batch each; small ones are repeated, so that many are sent at once."""
    frame_bytes = len(_produce_frame(topic, partition, sent.nth(0), acks, correlation_id=0))
    frames = len(sent.each) * max(1, _CYCLE_BYTES_MAX // (frame_bytes * len(sent.each)))
    made = [
        _produce_frame(topic, partition, sent.nth(number), acks, correlation_id=number)
        for number in range(frames)
    ]
    assert all(len(frame) == frame_bytes for frame in made)
    return Reel(b"".join(made), frames)


def _produce_frame(topic: str, partition: int, batch: bytes, acks: int, *, correlation_id: int) -> bytes:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=_REQUEST_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
        ],
    )
    chunks = framing.encode_request(
        request, version=PRODUCE_VERSION, correlation_id=correlation_id, client_id=CLIENT_ID
    )
    return b"".join(chunks)  # type: ignore[arg-type]  # a request holds no slice of a file


def connect(address: str, *, timeout_s: float) -> socket.socket:
    """A plain connection to `host:port`, which sends at once."""
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host, int(port)), timeout=timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


# ---------------------------------------------------------------- many requests, few or many connections


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of a run: how long it took, and for each connection the replies in their order."""

    seconds: float
    replies: tuple[bytes, ...]
    latencies_s: tuple[float, ...]


class Line:
    """One connection on which a reel is sent, with so many requests under way at most."""

    def __init__(self, connected: socket.socket, reel: Reel, *, requests: int, in_flight_max: int) -> None:
        self.socket = connected
        self.replies = bytearray()
        self.latencies_s: list[float] = []
        self._reel = memoryview(reel.data)
        self._frame_bytes = reel.frame_bytes
        self._bytes_total = requests * reel.frame_bytes
        self._in_flight_max = in_flight_max
        self._sent_bytes = 0
        self._replied = 0
        self._reply_at = 0
        self._sent_at = 0.0
        self._requests = requests

    @property
    def is_done(self) -> bool:
        """Whether every request was answered."""
        return self._replied == self._requests

    @property
    def wants_to_send(self) -> bool:
        """Whether there is something that may be sent now."""
        return self._sent_bytes < self._may_be_sent()

    def send(self) -> None:
        """As much as may be sent and the socket takes."""
        while (left := self._may_be_sent() - self._sent_bytes) > 0:
            start = self._sent_bytes % len(self._reel)
            end = min(start + min(left, _SEND_BYTES_MAX), len(self._reel))
            self._sent_at = time.perf_counter()
            try:
                sent = self.socket.send(self._reel[start:end])
            except BlockingIOError:
                return
            self._sent_bytes += sent
            if sent < end - start:
                return

    def receive(self, room: memoryview) -> None:
        """Take what has come, and count the replies that are complete."""
        try:
            count = self.socket.recv_into(room)
        except BlockingIOError:
            return
        if not count:
            raise Refused("the broker closed the connection")
        self.replies += room[:count]
        replied = self._replied
        self._replied += self.new_replies()
        if self._in_flight_max == 1 and self._replied > replied:
            self.latencies_s.append(time.perf_counter() - self._sent_at)

    def new_replies(self) -> int:
        """How many more replies are complete."""
        found = 0
        while len(self.replies) - self._reply_at >= _SIZE.size:
            end = self._reply_at + _SIZE.size + _SIZE.unpack_from(self.replies, self._reply_at)[0]
            if end > len(self.replies):
                break
            self._reply_at = end
            found += 1
        return found

    def _may_be_sent(self) -> int:
        return min(self._bytes_total, (self._replied + self._in_flight_max) * self._frame_bytes)


def drive(
    address: str,
    reels: Sequence[Reel],
    *,
    requests_each: int,
    in_flight_max: int,
    timeout_s: float,
    line: type[Line] = Line,
) -> Driven:
    """Send a reel on each of as many connections; with one request under way each is timed by itself."""
    deadline = time.monotonic() + timeout_s
    room = memoryview(bytearray(_RECEIVE_BYTES))
    with ExitStack() as stack:
        poll = stack.enter_context(selectors.DefaultSelector())
        lines = []
        for reel in reels:
            connected = stack.enter_context(connect(address, timeout_s=timeout_s))
            connected.setblocking(False)
            lines.append(line(connected, reel, requests=requests_each, in_flight_max=in_flight_max))
        began = time.perf_counter()
        for each in lines:
            each.send()
            poll.register(each.socket, _interest(each), each)
        unfinished = len(lines)
        while unfinished:
            ready = poll.select(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise Refused(f"{unfinished} of {len(lines)} connections were not done in {timeout_s:g} s")
            for key, _ in ready:
                each = key.data
                each.receive(room)
                each.send()
                if each.is_done:
                    unfinished -= 1
                    poll.unregister(each.socket)
                elif key.events != (events := _interest(each)):
                    poll.modify(each.socket, events, each)
        seconds = time.perf_counter() - began
        return Driven(
            seconds,
            tuple(bytes(each.replies) for each in lines),
            tuple(latency for each in lines for latency in each.latencies_s),
        )


def _interest(line: Line) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if line.wants_to_send else 0)


def check_produced(replies: bytes, reel: Reel, *, requests: int) -> list[int]:
    """The base offsets that the broker gave, in the order of the requests; Refused if it gave an error."""
    offsets = []
    for number, frame in enumerate(_frames(replies)):
        header_end = frame.start + 5  # correlation id, and no tagged fields
        correlation_id = _SIZE.unpack_from(replies, frame.start)[0]
        if correlation_id != number % reel.frames:
            raise Refused(f"reply {number} is to request {correlation_id}")
        response = ProduceResponse.decode(memoryview(replies)[header_end : frame.end], PRODUCE_VERSION)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code != ErrorCode.NONE:
            raise Refused(f"request {number}: {ErrorCode(answer.error_code).name}")
        offsets.append(answer.base_offset)
    if len(offsets) != requests:
        raise Refused(f"{len(offsets)} replies to {requests} requests")
    return offsets


def _frames(data: bytes) -> Iterator[framing.Frame]:
    position = 0
    while position < len(data):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(data, position)[0]
        yield framing.Frame(data, start, position, is_shared=False)


# ---------------------------------------------------------------- reading


class Reader:
    """Fetches one partition from an offset on, one request after the other; a context manager."""

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        fetch_bytes_max: int = 1024 * 1024,
        wait_ms_max: int = 500,
        timeout_s: float = 30,
    ) -> None:
        self.offset = offset
        self._socket = connect(address, timeout_s=timeout_s)
        self._requests = framing.Requests(CLIENT_ID)
        self._topic = topic
        self._partition = partition
        self._fetch_bytes_max = fetch_bytes_max
        self._wait_ms_max = wait_ms_max
        self._room = bytearray(fetch_bytes_max + 64 * 1024)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fetch(self) -> Buffer:
        """Whole batches from the offset on, which moves behind them; nothing if none came in time.

        The bytes are valid until the next fetch.
        """
        place = FetchPartition(
            partition=self._partition,
            current_leader_epoch=-1,
            fetch_offset=self.offset,
            partition_max_bytes=self._fetch_bytes_max,
        )
        request = FetchRequest(
            max_wait_ms=self._wait_ms_max,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._topic, partitions=[place])],
        )
        (answer,) = self._ask(request, FETCH_VERSION, FetchResponse).responses[0].partitions
        if answer.error_code != ErrorCode.NONE:
            raise Refused(f"fetch at {self.offset}: {ErrorCode(answer.error_code).name}")
        records = memoryview(answer.records or b"")  # type: ignore[arg-type]  # no slice of a file here
        end = 0
        for position, header in iter_headers(records):
            self.offset = header.next_offset
            end = position + header.size_bytes
        return records[:end]

    def _ask(self, request: Request, version: int, kind: type[R]) -> R:
        self._socket.sendall(b"".join(self._requests.encode(request, version)))  # type: ignore[arg-type]
        self._fill(0, _SIZE.size)
        (size,) = _SIZE.unpack_from(self._room)
        if size > len(self._room):
            self._room = bytearray(size)
        self._fill(0, size)
        response = self._requests.match(framing.Frame(self._room, 0, size, is_shared=False))
        assert isinstance(response, kind), response
        return response

    def _fill(self, start: int, end: int) -> None:
        room = memoryview(self._room)
        while start < end:
            count = self._socket.recv_into(room[start:end])
            if not count:
                raise Refused("the broker closed the connection")
            start += count


def read_back(address: str, topic: str, sent: Batches, *, count: int, partition: int = 0) -> None:
    """Read the first `count` batches of a partition, and raise unless they are those that were sent."""
    number = 0
    with Reader(address, topic, partition=partition) as reader:
        while number < count:
            read = reader.fetch()
            if not read:
                raise WrongPayload(f"{number} of {count} batches are there")
            number = check_batches(read, sent, first=number)
    if number != count:
        raise WrongPayload(f"{number} batches are there, where {count} were sent")
