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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from moldau.bench.payloads import Batches, WrongPayload, check_batches
from moldau.bench.usage import Meter
from moldau.model.errors import ErrorCode
from moldau.wire import framing
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
# How many connections Kafka leaves unaccepted.
_BACKLOG = 50


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


def produce_reel(topic: str, sent: Batches, *, acks: int, partitions: Sequence[int] = (0,)) -> Reel:
    """Produce requests with a batch each, to one partition after the other.

    Every partition gets all the batches in their order. Small requests are repeated, so that many are sent at
    once.
    """
    cycle = len(sent.each) * len(partitions)
    frame_bytes = len(_produce_frame(topic, 0, sent.nth(0), acks, correlation_id=0))
    frames = cycle * max(1, _CYCLE_BYTES_MAX // (frame_bytes * cycle))
    made = [
        _produce_frame(
            topic,
            partitions[number % len(partitions)],
            sent.nth(number // len(partitions)),
            acks,
            correlation_id=number,
        )
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


def connect_plain(address: str, *, timeout_s: float) -> socket.socket:
    """A plain connection to `host:port`, which sends at once."""
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


# ---------------------------------------------------------------- many requests, few or many connections


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of a run: for each connection the replies in their order, and how long each took.

    Times are known where only one request is under way.
    """

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

    def begin_no_more(self) -> None:
        """Let the request that is partly sent be the last."""
        self._requests = -(-self._sent_bytes // self._frame_bytes)
        self._bytes_total = self._requests * self._frame_bytes

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
    work: Sequence[tuple[str, Reel]],
    meter: Meter,
    *,
    requests_each: int,
    in_flight_max: int,
    timeout_s: float,
    seconds_max: float | None = None,
    line: type[Line] = Line,
) -> Driven:
    """Send a reel to each of some addresses, on a connection each, until all is done or the time is over.

    Whatever was begun in time is finished.
    """
    deadline = time.monotonic() + timeout_s
    room = memoryview(bytearray(_RECEIVE_BYTES))
    with ExitStack() as stack:
        poll = stack.enter_context(selectors.DefaultSelector())
        lines = []
        for address, reel in work:
            connected = stack.enter_context(connect_plain(address, timeout_s=timeout_s))
            connected.setblocking(False)
            if len(work) > _BACKLOG:
                # Or the server's backlog overflows, and the kernel tries again a second later.
                time.sleep(0.001)
            lines.append(line(connected, reel, requests=requests_each, in_flight_max=in_flight_max))
        with meter.running():
            ends = None if seconds_max is None else time.monotonic() + seconds_max
            for each in lines:
                each.send()
                poll.register(each.socket, _interest(each), each)
            unfinished = len(lines)
            while unfinished:
                ready = poll.select(deadline - time.monotonic())
                now = time.monotonic()
                if now > deadline:
                    raise Refused(f"{unfinished} of {len(lines)} connections took more than {timeout_s:g} s")
                if ends is not None and now > ends:
                    ends = None
                    for each in lines:
                        each.begin_no_more()
                for key, _ in ready:
                    each = key.data
                    each.receive(room)
                    each.send()
                    if each.is_done:
                        unfinished -= 1
                        poll.unregister(each.socket)
                    elif key.events != (events := _interest(each)):
                        poll.modify(each.socket, events, each)
        return Driven(
            tuple(bytes(each.replies) for each in lines),
            tuple(latency for each in lines for latency in each.latencies_s),
        )


def _interest(line: Line) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if line.wants_to_send else 0)


def produced_offsets(replies: bytes, reel: Reel) -> list[int]:
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
    return offsets


def _frames(data: bytes) -> Iterator[framing.Frame]:
    position = 0
    while position < len(data):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(data, position)[0]
        yield framing.Frame(data, start, position, is_shared=False)


# ---------------------------------------------------------------- reading


class Reader:
    """Fetches partitions of a topic from one broker, one request after the other; a context manager."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: Iterable[int] = (0,),
        *,
        fetch_bytes_max: int = 1024 * 1024,
        wait_ms_max: int = 500,
        timeout_s: float = 30,
    ) -> None:
        self.offsets = dict.fromkeys(partitions, 0)
        self.socket = connect_plain(address, timeout_s=timeout_s)
        self._requests = framing.Requests(CLIENT_ID)
        self._topic = topic
        self._fetch_bytes_max = fetch_bytes_max
        self._wait_ms_max = wait_ms_max
        self._room = bytearray(fetch_bytes_max + 64 * 1024)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def fetch(self) -> list[tuple[int, Buffer]]:
        """Whole batches of some partitions, behind which their offsets move; none if none came in time.

        The bytes are valid until the next fetch.
        """
        self.ask()
        return self.answer()

    def ask(self) -> None:
        """Send the next request."""
        places = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=-1,
                fetch_offset=offset,
                partition_max_bytes=self._fetch_bytes_max,
            )
            for partition, offset in self.offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=self._wait_ms_max,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._topic, partitions=places)],
        )
        self.socket.sendall(b"".join(self._requests.encode(request, FETCH_VERSION)))  # type: ignore[arg-type]

    def answer(self) -> list[tuple[int, Buffer]]:
        """Read the reply to what was asked."""
        self._fill(_SIZE.size)
        (size,) = _SIZE.unpack_from(self._room)
        if size > len(self._room):
            self._room = bytearray(size)
        self._fill(size)
        response = self._requests.match(framing.Frame(self._room, 0, size, is_shared=False))
        assert isinstance(response, FetchResponse), response
        found: list[tuple[int, Buffer]] = []
        for answer in response.responses[0].partitions if response.responses else ():
            partition = answer.partition_index
            if answer.error_code != ErrorCode.NONE:
                raise Refused(f"fetch of partition {partition}: {ErrorCode(answer.error_code).name}")
            records = memoryview(answer.records or b"")  # type: ignore[arg-type]  # no slice of a file here
            end = 0
            for position, header in iter_headers(records):
                self.offsets[partition] = header.next_offset
                end = position + header.size_bytes
            if end:
                # To the end of the line, so that the others come first next time.
                self.offsets[partition] = self.offsets.pop(partition)
                found.append((partition, records[:end]))
        return found

    def _fill(self, size: int) -> None:
        room = memoryview(self._room)
        start = 0
        while start < size:
            count = self.socket.recv_into(room[start:size])
            if not count:
                raise Refused("the broker closed the connection")
            start += count


def read_back(address: str, topic: str, sent: Batches, *, counts: Mapping[int, int]) -> None:
    """Read the first batches of some partitions, so many of each; raise unless they are what was sent."""
    numbers = dict.fromkeys(counts, 0)
    with Reader(address, topic, counts, fetch_bytes_max=4 * 2**20, wait_ms_max=2_000) as reader:
        while any(numbers[partition] < count for partition, count in counts.items()):
            read = reader.fetch()
            if not read:
                raise WrongPayload(f"{sum(numbers.values())} of {sum(counts.values())} batches are there")
            for partition, records in read:
                numbers[partition] = check_batches(records, sent, first=numbers[partition])
    if numbers != dict(counts):
        raise WrongPayload(f"{sum(numbers.values())} batches are there, {sum(counts.values())} were sent")
