"""A broker in a simulated world, asked in plain calls: virtual time passes until the answer is there."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

from moldau.log.log import Log
from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.model.errors import ErrorCode
from moldau.model.ids import ClusterId, DirectoryId, TopicId, Uuid
from moldau.node.config import NodeConfig
from moldau.node.node import Node
from moldau.node.storage import format_directory, standalone_voters
from moldau.sim.cluster import EPOCH_MS, Cluster
from moldau.sim.disk import SimDisk
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages import spoken_versions
from moldau.wire.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from moldau.wire.messages.configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import BatchHeader
from moldau.wire.records.record import Record
from moldau.world.ports import Address, Connection, World

R = TypeVar("R", bound=Response)

HOST = "broker"
CLIENTS = Address(HOST, 9092)
CONTROLLER = Address(HOST, 9093)
CLUSTER_ID = ClusterId("TW9sZGF1VGVzdE5vZGUAAA")
DIRECTORY_ID = DirectoryId(Uuid(b"the broker's own"))
TOPIC = "t"
NOW_MS = EPOCH_MS
"""The calendar when a simulation begins."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://{CLIENTS},CONTROLLER://{CONTROLLER}",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": str(CONTROLLER),
    "log.dirs": "data",
    "controller.quorum.election.timeout.ms": "100",
    "controller.quorum.election.backoff.max.ms": "100",
}
_BATCH_LENGTH = struct.Struct(">i")
_FRAME_BYTES_MAX = 100 * 1024 * 1024


class Broker:
    """One node, broker and controller, on a machine of its own; clients are on others."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, seed: int = 1, flush_ms: tuple[int, int] = (0, 5)
    ) -> None:
        self.sim = Cluster(seed)
        self._settings = dict(settings or {})
        self._machine = self.sim.add(HOST, self._run, flush_ms=flush_ms)
        self._is_ready = False
        self._wire: Wire | None = None
        self._format()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def _format(self) -> None:
        config = self.config
        format_directory(
            self._machine.disk,
            config,
            cluster_id=CLUSTER_ID,
            directory_id=DIRECTORY_ID,
            voters=standalone_voters(config, DIRECTORY_ID),
            levels={},
            timestamp=NOW_MS,
        )

    @property
    def disk(self) -> SimDisk:
        """The broker's disk, to damage it."""
        return self._machine.disk

    @property
    def config(self) -> NodeConfig:
        """The node's file of settings."""
        return NodeConfig.of(_SETTINGS | self._settings)

    async def _run(self, world: World) -> None:
        self.node = Node(world, self.config)
        self.node.on_ready = self._ready
        await self.node.run()

    def _ready(self) -> None:
        self._is_ready = True

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Start it, and wait until it serves clients."""
        self.begin()
        self.run_until(lambda: self._is_ready)

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        self._is_ready = False
        self._wire = None
        self._machine.start()

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._machine.is_alive

    def tell_to_stop(self) -> None:
        """The same as `stop`, without waiting for it."""
        self._machine.stop(timeout_ms=0)

    def stop(self) -> None:
        """Stop it as SIGTERM does."""
        assert self._machine.stop(), "the broker does not stop"

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop it in an orderly way and start it again, with other settings if there are any."""
        self.stop()
        self._settings |= settings or {}
        self.start()

    def crash(self) -> None:
        """Kill it, and start it again."""
        self._machine.kill()
        self.start()

    def close(self) -> None:
        """Take the simulation apart."""
        self.sim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ time

    def run_until(self, is_reached: Callable[[], bool], *, timeout_ms: int = 60_000) -> None:
        """Let time pass until something is true."""
        assert self.sim.run_until(is_reached, timeout_ms=timeout_ms), "what was waited for never came"

    def run_for(self, duration_ms: int) -> None:
        """Let time pass."""
        self.sim.run_for(duration_ms)

    @property
    def now_ms(self) -> int:
        """Virtual milliseconds since the simulation began."""
        return self.sim.loop.now_us // 1000

    @property
    def wall_ms(self) -> int:
        """What the broker's calendar says."""
        return NOW_MS + self.now_ms + self._machine.wall_skew_ms

    # ------------------------------------------------------------ clients

    def connect(self, to: Address = CLIENTS, *, client_id: str = "test", host: str = "client") -> Wire:
        """A new connection from a machine called `host`."""
        wire = Wire(self, client_id)
        connecting = self.sim.loop.create_task(self.sim.network.endpoint(host).connect(to, wire))
        self.run_until(connecting.done)
        connecting.result()
        return wire

    @property
    def wire(self) -> Wire:
        """A connection of which there is one in each life of the broker."""
        if self._wire is None or self._wire.is_closed:
            self._wire = self.connect()
        return self._wire

    def ask(self, request: Request, version: int | None = None) -> Response:
        """The response to a request; in the newest version if none is said."""
        return self.wire.ask(request, version)

    # ------------------------------------------------------------ topics

    def create_topic(
        self,
        name: str = TOPIC,
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        brokers: Sequence[int] = (),
        version: int = 7,
    ) -> TopicId:
        """Create a topic, on certain brokers with one partition, and give its id."""
        asked = CreatableTopic(
            name=name,
            num_partitions=-1 if brokers else partitions,
            replication_factor=-1 if brokers else 1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[*brokers])]
            if brokers
            else [],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
        )
        response = answer(
            self.ask(CreateTopicsRequest(topics=[asked], timeout_ms=10_000), version), CreateTopicsResponse
        )
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.NONE, (ErrorCode(topic.error_code), topic.error_message)
        return TopicId(topic.topic_id)

    def delete_topic(self, name: str = TOPIC) -> ErrorCode:
        """Delete a topic; gives what came of it."""
        response = answer(
            self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5), DeleteTopicsResponse
        )
        return ErrorCode(response.responses[0].error_code)

    def topic(
        self, name: str = TOPIC, *, version: int = 12, may_create: bool = False
    ) -> MetadataResponseTopic:
        """What Metadata says of a topic."""
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=may_create
        )
        (topic,) = answer(self.ask(asked, version), MetadataResponse).topics
        return topic

    def alter(
        self, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
    ) -> ErrorCode:
        """Change settings, each given as (name, operation, value); gives what came of it."""
        asked = IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        response = answer(
            self.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate_only)),
            IncrementalAlterConfigsResponse,
        )
        return ErrorCode(response.responses[0].error_code)

    # ------------------------------------------------------------ records

    def log(self, topic: str = TOPIC, *, partition: int = 0) -> Log:
        """The log itself, to wait for what clients are not told of."""
        replica = self.node.partitions.find(topic, partition)
        assert replica is not None, f"there is no {topic}-{partition}"
        return replica.log

    def produce(
        self,
        records: bytes,
        topic: str = TOPIC,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 30_000,
        version: int = 12,
    ) -> PartitionProduceResponse:
        """Produce one batch, and give what came of it."""
        request = produce_request(records, topic, partition=partition, acks=acks, timeout_ms=timeout_ms)
        return produced(self.ask(request, version))

    def append(self, values: Iterable[bytes], topic: str = TOPIC, *, partition: int = 0) -> int:
        """Produce the values as one batch that must be accepted; gives the offset of the first."""
        done = self.produce(batch(values, timestamp=self.wall_ms), topic, partition=partition)
        assert done.error_code == ErrorCode.NONE, (ErrorCode(done.error_code), done.error_message)
        return done.base_offset

    def put(self, *pairs: tuple[bytes, bytes | None], topic: str = TOPIC) -> int:
        """Produce keys and values as one batch that must be accepted; gives the offset of the first."""
        records = [Record(at, self.wall_ms, key, value) for at, (key, value) in enumerate(pairs)]
        done = self.produce(batch_of(records), topic)
        assert done.error_code == ErrorCode.NONE, (ErrorCode(done.error_code), done.error_message)
        return done.base_offset

    def fetch(
        self,
        offset: int = 0,
        topic: str = TOPIC,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        version: int = 12,
        epoch: int = -1,
        last_epoch: int = -1,
        isolation_level: int = 0,
    ) -> PartitionData:
        """Fetch from one partition."""
        asked = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        return fetched(self.ask(request, version))

    def records(self, topic: str = TOPIC, *, partition: int = 0, offset: int = 0) -> list[Record]:
        """All that can be read of a partition, from an offset on."""
        read: list[Record] = []
        while True:
            data = self.fetch(offset, topic, partition=partition)
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
            found = [record for each in batches(data) for record in each if record.offset >= offset]
            ends = [header.next_offset for header in headers(data)]
            read += found
            if not ends or max(ends) >= data.high_watermark:
                return read
            offset = max(ends)

    def values(self, topic: str = TOPIC, *, partition: int = 0) -> list[bytes | None]:
        """The values of all records of a partition."""
        return [record.value for record in self.records(topic, partition=partition)]

    def list_offset(
        self,
        timestamp: int,
        topic: str = TOPIC,
        *,
        version: int = 11,
        isolation_level: int = 0,
        epoch: int = -1,
    ) -> ListOffsetsPartitionResponse:
        """The offset of a time, or of one of the negative numbers that stand for something else."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        return answer(self.ask(request, version), ListOffsetsResponse).topics[0].partitions[0]


class OtherBroker:
    """Another broker as the controller sees it: it registers and sends heartbeats, and does nothing else."""

    def __init__(self, broker: Broker, node_id: int = 2) -> None:
        self.node_id = node_id
        self.wire = broker.connect(CONTROLLER, host=f"broker-{node_id}")
        registered = self.register(b"%016d" % node_id)
        assert registered.error_code == ErrorCode.NONE, ErrorCode(registered.error_code)
        self.epoch = registered.broker_epoch

    def register(self, incarnation: bytes) -> BrokerRegistrationResponse:
        """Say who it is."""
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(incarnation),
            listeners=[
                Listener(name="PLAINTEXT", host=f"broker-{self.node_id}", port=9092, security_protocol=0)
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in SUPPORTED_FEATURES
            ],
            rack=None,
            log_dirs=[DirectoryId(Uuid(b"the %012d" % self.node_id))],
        )
        return answer(self.wire.ask(request, 4), BrokerRegistrationResponse)

    def heartbeat(
        self, *, epoch: int | None = None, metadata_offset: int = 1 << 40
    ) -> BrokerHeartbeatResponse:
        """Say that it lives, and that it knows all that there is to know."""
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.epoch if epoch is None else epoch,
            current_metadata_offset=metadata_offset,
            want_fence=False,
            want_shut_down=False,
        )
        return answer(self.wire.ask(request, 1), BrokerHeartbeatResponse)


class Wire:
    """One connection of a client that may send whatever it likes; it implements the Receiver port."""

    def __init__(self, broker: Broker, client_id: str) -> None:
        self.is_closed = False
        self.answers: deque[Response] = deque()
        self.raw: deque[bytes] = deque()
        """The frames that came, as they came; with `is_raw` nothing else is made of them."""
        self.is_raw = False
        self._broker = broker
        self._requests = framing.Requests(client_id)
        self._frames = framing.Receiver(bytearray(64 * 1024), frame_bytes_max=_FRAME_BYTES_MAX)
        self._connection: Connection | None = None

    def send(self, request: Request, version: int | None = None, *, is_answered: bool = True) -> None:
        """Send a request without waiting for anything."""
        self.send_all([request], version, is_answered=is_answered)

    def send_all(
        self, requests: Sequence[Request], version: int | None = None, *, is_answered: bool = True
    ) -> None:
        """Send requests at once."""
        assert self._connection is not None
        for request in requests:
            chunks = self._requests.encode(request, _version(request, version), is_answered=is_answered)
            self._connection.send(chunks)  # type: ignore[arg-type]

    def send_bytes(self, frame: bytes) -> None:
        """Send a frame that may be anything."""
        assert self._connection is not None
        self._connection.send([_BATCH_LENGTH.pack(len(frame)), frame])

    def receive(self, *, timeout_ms: int = 60_000) -> Response:
        """The next response."""
        self._broker.run_until(lambda: bool(self.answers) or self.is_closed, timeout_ms=timeout_ms)
        assert self.answers, "the broker closed the connection"
        return self.answers.popleft()

    def receive_raw(self) -> bytes:
        """The next response as it came."""
        self._broker.run_until(lambda: bool(self.raw) or self.is_closed)
        assert self.raw, "the broker closed the connection"
        return self.raw.popleft()

    def ask(self, request: Request, version: int | None = None) -> Response:
        """Send a request and wait for its response."""
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        """Close the connection, as a client that crashes does."""
        assert self._connection is not None
        self._connection.abort()

    def until_closed(self, *, timeout_ms: int = 60_000) -> None:
        """Wait until the broker closes the connection."""
        self._broker.run_until(lambda: self.is_closed, timeout_ms=timeout_ms)

    # ------------------------------------------------------------ the Receiver port

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        self._connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return self._frames.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        """Responses, or a part of one, have arrived."""
        for frame in self._frames.filled(count):
            data = bytes(memoryview(frame.buffer)[frame.start : frame.end])
            self.raw.append(data)
            if not self.is_raw:
                self.answers.append(self._requests.match(framing.Frame(data, 0, len(data), is_shared=False)))

    def pause_sending(self) -> None:
        """Tests send little."""

    def resume_sending(self) -> None:
        """Tests send little."""

    def disconnected(self, error: Exception | None) -> None:
        """The broker does not want to hear any more."""
        self.is_closed = True


# ---------------------------------------------------------------- records


def batch(
    values: Iterable[bytes | None],
    *,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """A batch as a producer sends it; `producer` is (id, epoch, first sequence) of one that is idempotent."""
    records = [Record(at, timestamp, key, value) for at, value in enumerate(values)]
    return batch_of(records, codec=codec, producer=producer)


def batch_of(
    records: Sequence[Record], *, codec: Codec = Codec.NONE, producer: tuple[int, int, int] | None = None
) -> bytes:
    """The same, of whole records."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def split(data: bytes) -> Iterator[bytes]:
    """The batches that stand one behind the other."""
    while data:
        length = 12 + _BATCH_LENGTH.unpack_from(data, 8)[0]
        yield data[:length]
        data = data[length:]


def raw_records(data: PartitionData) -> bytes:
    """The batches that a fetch brought, as they came."""
    records = data.records or b""
    assert isinstance(records, bytes | bytearray | memoryview), "what came over a connection is in no file"
    return bytes(records)


def headers(data: PartitionData) -> list[BatchHeader]:
    """The headers of the batches that a fetch brought."""
    return [decode_batch(each)[0] for each in split(raw_records(data))]


def batches(data: PartitionData) -> list[list[Record]]:
    """The records that a fetch brought, batch by batch."""
    return [decode_batch(each)[1] for each in split(raw_records(data))]


# ---------------------------------------------------------------- requests and responses


def produce_request(
    records: bytes | None,
    topic: str = TOPIC,
    *,
    topic_id: Uuid | None = None,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    """A request with one batch for one partition."""
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
    )
    if topic_id is not None:
        data.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def produced(response: Response) -> PartitionProduceResponse:
    """What came of the only batch of a request."""
    return answer(response, ProduceResponse).responses[0].partition_responses[0]


def fetched(response: Response) -> PartitionData:
    """What came of the only partition of a fetch."""
    whole = answer(response, FetchResponse)
    assert whole.error_code == ErrorCode.NONE, ErrorCode(whole.error_code)
    return whole.responses[0].partitions[0]


def answer(response: Response, expected: type[R]) -> R:
    """The response as the class that it must be of."""
    assert isinstance(response, expected), response
    return response


def _version(request: Request, version: int | None) -> int:
    if version is not None:
        return version
    key = type(request).declaration.key
    assert key is not None
    return spoken_versions(key).highest
