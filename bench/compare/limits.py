"""The bare limit of each kind of work: the same bytes, at the same pace, to a server without a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from compare.bare import COUNT, EMPTY, READ, THROUGH, WRITE, WRITE_AND_FLUSH
from compare.servers import Server
from moldau.bench.payloads import Batches, batches, batches_of_bytes
from moldau.bench.pipeline import ACKS_ALL, Line, connect_plain, drive, produce_reel
from moldau.bench.usage import Meter
from moldau.bench.workloads import (
    IN_FLIGHT,
    LATENCY_PER_SECOND,
    Outcome,
    Scale,
    frame_of,
    outcome,
    paced,
)

TIMEOUT_S = 120
MIB = 1024 * 1024
_TOPIC = "bare"


class WriteLine(Line):
    """A connection that writes: a request is answered when the server has its last byte."""

    kind = WRITE
    _taken = 0

    def send(self) -> None:
        """Say first what the connection is for."""
        if not self._sent_bytes:
            self.socket.send(self.kind)
        super().send()

    def new_replies(self) -> int:
        """How many more requests the server has, as its last answer says."""
        end = len(self.replies) // COUNT.size * COUNT.size
        if not end:
            return 0
        before = self._taken
        self._taken = COUNT.unpack_from(self.replies, end - COUNT.size)[0] // self._frame_bytes
        return self._taken - before


class FlushLine(WriteLine):
    """The same, flushed to disk."""

    kind = WRITE_AND_FLUSH


class ThroughLine(WriteLine):
    """A connection that gets back what it sends, by way of a file."""

    kind = THROUGH

    def new_replies(self) -> int:
        """How many more requests have come back."""
        before = self._taken
        self._taken = len(self.replies) // self._frame_bytes
        return self._taken - before


def write_line(*, is_flushed: bool) -> type[WriteLine]:
    """How to write."""
    return FlushLine if is_flushed else WriteLine


def produce(
    server: Server,
    scale: Scale,
    *,
    is_flushed: bool,
    value_bytes: int,
    batch_bytes: int = MIB,
    connections: int = 1,
) -> Outcome:
    """As many records in batches as a producer sends."""
    sent = batches_of_bytes(batch_bytes, value_bytes=value_bytes, different=4)
    requests = max(1, scale.records_of(value_bytes) // (sent.records_per_batch * connections))
    line = write_line(is_flushed=is_flushed)
    meter = write_batches(server, sent, requests=requests, connections=connections, line=line)
    messages = requests * connections * sent.records_per_batch
    return outcome(meter, messages=messages, value_bytes=value_bytes)


def write_batches(
    server: Server,
    sent: Batches,
    *,
    requests: int,
    connections: int = 1,
    in_flight_max: int = IN_FLIGHT,
    seconds_max: float | None = None,
    line: type[WriteLine] = WriteLine,
) -> Meter:
    """So many requests with a batch each on each connection."""
    empty(server)
    meter = Meter(server.pid)
    reel = produce_reel(_TOPIC, sent, acks=ACKS_ALL)
    drive(
        [(server.address, reel)] * connections,
        meter,
        requests_each=requests,
        in_flight_max=in_flight_max,
        seconds_max=seconds_max,
        timeout_s=TIMEOUT_S,
        line=line,
    )
    return meter


def spread_over(server: Server, scale: Scale, *, is_flushed: bool) -> Outcome:
    """Small batches, of which many are under way."""
    sent = batches(value_bytes=100, records_per_batch=10)
    requests = max(1, scale.records // 10 // sent.records_per_batch)
    line = write_line(is_flushed=is_flushed)
    meter = write_batches(server, sent, requests=requests, in_flight_max=100, line=line)
    return outcome(meter, messages=requests * sent.records_per_batch, value_bytes=100)


def round_trips(server: Server, scale: Scale, *, is_flushed: bool, connections: int) -> Outcome:
    """Connections that each send a record when the one before was answered."""
    empty(server)
    meter = Meter(server.pid)
    reel = produce_reel(_TOPIC, batches(value_bytes=100, records_per_batch=1, different=1), acks=ACKS_ALL)
    driven = drive(
        [(server.address, reel)] * connections,
        meter,
        requests_each=2**31,
        in_flight_max=1,
        seconds_max=scale.seconds,
        timeout_s=TIMEOUT_S,
        line=write_line(is_flushed=is_flushed),
    )
    messages = len(driven.latencies_s)
    return outcome(meter, messages=messages, value_bytes=100, latencies_s=driven.latencies_s)


def consume_history(server: Server, scale: Scale, *, value_bytes: int) -> Outcome:
    """What was written, sent from the file."""
    written = produce(server, scale, is_flushed=False, value_bytes=value_bytes)
    meter = Meter(server.pid)
    passes = 0
    while meter.seconds < scale.seconds:
        read_bytes(server, written.payload_bytes, meter)
        passes += 1
    return outcome(meter, messages=passes * written.messages, value_bytes=value_bytes)


def consume_tail(server: Server, scale: Scale, *, value_bytes: int) -> Outcome:
    """Received, written and sent on."""
    sent = batches_of_bytes(256 * 1024, value_bytes=value_bytes, different=4)
    requests = max(1, scale.records_of(value_bytes) // 2 // sent.records_per_batch)
    meter = write_batches(server, sent, requests=requests, line=ThroughLine)
    return outcome(meter, messages=requests * sent.records_per_batch, value_bytes=value_bytes)


def end_to_end(server: Server, scale: Scale, *, is_flushed: bool) -> Outcome:
    """From when a message is due until the server has answered."""
    empty(server)
    meter = Meter(server.pid)
    reel = produce_reel(_TOPIC, batches(value_bytes=100, records_per_batch=1), acks=ACKS_ALL)
    answered = bytearray()
    with connect_plain(server.address, timeout_s=TIMEOUT_S) as connected:
        connected.sendall(write_line(is_flushed=is_flushed).kind)

        def receive(ready: Sequence[socket]) -> int:
            answered.extend(connected.recv(4096))
            end = len(answered) // COUNT.size * COUNT.size
            return int.from_bytes(answered[end - COUNT.size : end], "big") // reel.frame_bytes

        total = int(LATENCY_PER_SECOND * scale.latency_seconds)
        latencies_s = paced(
            (connected,),
            lambda number: connected.sendall(frame_of(reel, number)),
            receive,
            total=total,
            meter=meter,
            timeout_s=TIMEOUT_S,
        )
    return outcome(meter, messages=total, value_bytes=100, latencies_s=tuple(latencies_s))


def read_bytes(server: Server, total_bytes: int, meter: Meter | None = None) -> Meter:
    """So many bytes of what was written last."""
    meter = meter or Meter(server.pid)
    room = bytearray(MIB)
    with connect_plain(server.address, timeout_s=TIMEOUT_S) as connected, meter.running():
        connected.sendall(READ + COUNT.pack(total_bytes))
        left = total_bytes
        while left:
            count = connected.recv_into(room)
            assert count, f"{left} bytes were not sent"
            left -= count
    return meter


def empty(server: Server) -> None:
    """Forget what was written."""
    with connect_plain(server.address, timeout_s=TIMEOUT_S) as connected:
        connected.sendall(EMPTY)
        connected.recv(1)
