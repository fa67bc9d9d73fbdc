"""A client that sends whatever bytes a test wants, and reads frames one by one."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from moldau.model.errors import ErrorCode
from moldau.model.ids import Uuid
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record

TIMEOUT_S = 30
FRAME_BYTES_MAX = 256 * 1024 * 1024
# The last versions in which topics go by their names.
PRODUCE_VERSION = 12
FETCH_VERSION = 12

_SIZE = struct.Struct(">i")

R = TypeVar("R", bound=Response)


class Closed(Exception):
    """The broker has ended the connection."""


class RawClient:
    """One plaintext connection; a context manager."""

    def __init__(self, address: str, client_id: str = "raw", *, receive_bytes: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._client_id = client_id
        self._requests = framing.Requests(client_id)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:
            # Before connecting, or the window is already agreed upon.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # ------------------------------------------------------------ bytes

    def send(self, data: bytes) -> None:
        """Send bytes as they are; Closed if the broker takes no more."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def send_frame(self, content: bytes) -> None:
        """Send bytes behind their size."""
        self.send(_SIZE.pack(len(content)) + content)

    def read_frame(self) -> bytes:
        """The next frame without its size; Closed if there is none."""
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        assert 0 <= size <= FRAME_BYTES_MAX, size
        return self._read(size)

    def is_closed_by_broker(self, within_s: float = 10) -> bool:
        """Whether the broker ends the connection in time; whatever it still says is ignored."""
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left_s)
            try:
                if not self.socket.recv(65536):
                    return True
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True
        return False

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                raise Closed from None
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    # ------------------------------------------------------------ messages

    def encode(self, request: Request, version: int, *, is_answered: bool = True) -> bytes:
        """The frame of a request, of which the reply is then expected."""
        chunks = self._requests.encode(request, version, is_answered=is_answered)
        return b"".join(chunks)  # type: ignore[arg-type]  # a request holds no slice of a file

    def read(self, kind: type[R]) -> R:
        """The reply to the oldest request that waits for one."""
        content = self.read_frame()
        response = self._requests.match(framing.Frame(content, 0, len(content), is_shared=False))
        assert isinstance(response, kind), response
        return response

    def ask(self, request: Request, version: int, kind: type[R]) -> R:
        """Send a request and read its reply."""
        self.send(self.encode(request, version))
        return self.read(kind)

    # ------------------------------------------------------------ what many tests ask

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> int:
        """Create a topic; gives the error code."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = self.ask(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
        return response.topics[0].error_code

    def topic_id(self, name: str) -> Uuid:
        """The id of a topic."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.ask(asked, 12, MetadataResponse).topics[0].topic_id

    def produce(self, topic: str, batch: bytes | None, *, acks: int = -1) -> PartitionProduceResponse:
        """Append a batch to the first partition, and see what the broker makes of it."""
        response = self.ask(produce_request(topic, batch, acks=acks), PRODUCE_VERSION, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def values(self, topic: str) -> list[bytes]:
        """All values in the first partition, in their order, of batches that are sound."""
        values: list[bytes] = []
        offset = 0
        while True:
            response = self.ask(fetch_request(topic, offset=offset), FETCH_VERSION, FetchResponse)
            (partition,) = response.responses[0].partitions
            assert partition.error_code == ErrorCode.NONE, ErrorCode(partition.error_code)
            content = memoryview(partition.records or b"")  # type: ignore[arg-type]  # no slice of a file
            headers = list(iter_headers(content))
            if not headers:
                return values
            for position, header in headers:
                batch = decode_batch(content[position:])[1]
                values += [bytes(record.value or b"") for record in batch if record.offset >= offset]
                offset = header.base_offset + header.last_offset_delta + 1


def produce_request(topic: str, batch: bytes | None, *, acks: int = -1) -> ProduceRequest:
    """A batch for the first partition of a topic."""
    partition = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_S * 1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )


def fetch_request(
    topic: str,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    bytes_max: int = 2**31 - 1,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """What the first partition of a topic holds."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=bytes_max,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def batch_of(*values: bytes, key: bytes | None = b"key") -> bytes:
    """An uncompressed batch, dated now."""
    now_ms = time.time_ns() // 1_000_000
    return encode_batch([Record(index, now_ms, key, value) for index, value in enumerate(values)])


def wait_until(
    is_true: Callable[[], bool], what: str | Callable[[], str], within_s: float = TIMEOUT_S
) -> None:
    """Wait for a condition, which must come true in time."""
    deadline = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()}: not within {within_s} s")
        time.sleep(0.02)
