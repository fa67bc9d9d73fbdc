"""Brokers that keep their logs in memory, for simulations of the client alone.

They know just enough of the protocol to be strict about what matters to a client: who leads, which epoch,
which sequence number comes next. All share one state, as if replication were perfect and took no time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.model.errors import ErrorCode
from moldau.model.ids import Sequence, Uuid, sequence_after
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages import advertised_versions
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.wire.messages.fetch import LeaderIdAndEpoch as FetchLeader
from moldau.wire.messages.fetch import NodeEndpoint as FetchEndpoint
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.wire.messages.txn import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.records.batch import decode_batch
from moldau.wire.records.header import BatchHeader, iter_headers, stamp
from moldau.wire.records.record import Record
from moldau.world.ports import Address, Connection, Network, ServerTls, World

TOPIC = "orders"
TOPIC_ID = Uuid(b"orders-topic-id!")
PORT = 9092


@dataclass
class FakePartition:
    """A log, who leads it, and what is remembered of its producers."""

    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    # By producer: its epoch, and the first sequence, count and offset of its last five batches.
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)
    duplicates: int = 0

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(batch)[1]]

    def append(self, data: bytes | bytearray | memoryview, *, batch_bytes_max: int) -> tuple[ErrorCode, int]:
        batch = bytearray(data)
        ((_, header),) = iter_headers(batch)
        if len(batch) > batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.has_producer_id:
            code, offset = self._sequence_is_next(header)
            if code != ErrorCode.NONE or offset >= 0:
                return code, offset
        stamp(batch, 0, base_offset=self.end, leader_epoch=self.epoch)
        self.batches.append(bytes(batch))
        offset, self.end = self.end, self.end + header.count
        return ErrorCode.NONE, offset

    def truncate(self, batch_count: int) -> None:
        """Lose the last batches, as an unclean election does."""
        del self.batches[batch_count:]
        headers = [header for batch in self.batches for _, header in iter_headers(batch)]
        self.end = headers[-1].next_offset if headers else self.log_start

    def _sequence_is_next(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        if header.producer_id not in self.producers:
            # A broker that has forgotten a producer, or never knew it, takes what comes.
            written = (header.base_sequence, header.count, self.end)
            self.producers[header.producer_id] = (header.producer_epoch, deque([written], maxlen=5))
            return ErrorCode.NONE, -1
        epoch, recent = self.producers[header.producer_id]
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch == epoch:
            for first, count, offset in recent:
                if (first, count) == (header.base_sequence, header.count):
                    self.duplicates += 1
                    return ErrorCode.NONE, offset
            first, count, _ = recent[-1]
            expected = sequence_after(Sequence(first), count)
        else:
            recent, expected = deque(maxlen=5), Sequence(0)
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        recent.append((header.base_sequence, header.count, self.end))
        self.producers[header.producer_id] = (header.producer_epoch, recent)
        return ErrorCode.NONE, -1


class FakeCluster:
    """What all fake brokers know."""

    def __init__(self, *, broker_count: int, partition_count: int) -> None:
        self.brokers = {index: Address(f"broker{index}", PORT) for index in range(1, broker_count + 1)}
        self.partitions = [FakePartition(leader=1 + index % broker_count) for index in range(partition_count)]
        self.batch_bytes_max = 2**20
        self.has_leader_hints = True
        self.producer_ids = 0
        # What Produce answers instead of writing, one after the other.
        self.produce_errors: deque[ErrorCode] = deque()
        self.requests: list[str] = []
        # Called with each request before it is answered.
        self.on_request: Callable[[Request], None] | None = None

    def move_leader(self, index: int, leader: int) -> None:
        """Let another broker lead, from the next epoch on."""
        self.partitions[index].leader = leader
        self.partitions[index].epoch += 1

    async def serve(self, world: World, node_id: int) -> None:
        """Be one broker from now on."""
        await self.listen(world.network, node_id)

    async def listen(self, network: Network, node_id: int, *, tls: ServerTls | None = None) -> None:
        """The same on any network; at port 0 it takes a free one, which clients then hear of."""
        listener = await network.listen(self.brokers[node_id], lambda: _Session(self, node_id), tls=tls)
        self.brokers[node_id] = listener.address

    def answer(self, node_id: int, request: Request) -> Response | None:
        self.requests.append(type(request).__name__)
        if self.on_request is not None:
            self.on_request(request)
        match request:
            case ApiVersionsRequest():
                return self._api_versions()
            case MetadataRequest():
                return self._metadata(request)
            case InitProducerIdRequest():
                self.producer_ids += 1
                return InitProducerIdResponse(
                    throttle_time_ms=0, error_code=0, producer_id=self.producer_ids, producer_epoch=0
                )
            case ProduceRequest():
                return self._produce(node_id, request)
            case FetchRequest():
                return self._fetch(node_id, request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
        raise AssertionError(f"{type(request).__name__} is not faked")

    def _api_versions(self) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in advertised_versions().items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=rows)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name for topic in request.topics] if request.topics is not None else [TOPIC]
        rows = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.epoch,
                replica_nodes=list(self.brokers),
                isr_nodes=list(self.brokers),
            )
            for index, partition in enumerate(self.partitions)
        ]
        topics = [
            MetadataResponseTopic(error_code=0, name=name, topic_id=TOPIC_ID, partitions=rows)
            if name == TOPIC
            else MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[]
            )
            for name in names
        ]
        brokers = [
            MetadataResponseBroker(node_id=node_id, host=address.host, port=address.port)
            for node_id, address in self.brokers.items()
        ]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=1, topics=topics)

    def _produce(self, node_id: int, request: ProduceRequest) -> ProduceResponse | None:
        topics = []
        endpoints: dict[int, Address] = {}
        for topic in request.topic_data:
            assert topic.topic_id == TOPIC_ID
            rows = []
            for data in topic.partition_data:
                row = self._produce_one(node_id, data)
                rows.append(row)
                if row.current_leader.leader_id >= 0:
                    endpoints[row.current_leader.leader_id] = self.brokers[row.current_leader.leader_id]
            topics.append(TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=rows))
        nodes = [NodeEndpoint(node_id=each, host=at.host, port=at.port) for each, at in endpoints.items()]
        return ProduceResponse(responses=topics, node_endpoints=nodes) if request.acks else None

    def _produce_one(self, node_id: int, data: PartitionProduceData) -> PartitionProduceResponse:
        partition = self.partitions[data.index]
        row = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
        if partition.leader != node_id:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self.has_leader_hints:
                row.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.epoch
                )
        elif self.produce_errors:
            row.error_code = self.produce_errors.popleft()
        else:
            assert data.records is not None
            row.error_code, row.base_offset = partition.append(
                data.records, batch_bytes_max=self.batch_bytes_max
            )
        return row

    def _fetch(self, node_id: int, request: FetchRequest) -> FetchResponse:
        topics = []
        for topic in request.topics:
            assert topic.topic_id == TOPIC_ID
            rows = [self._fetch_one(node_id, each) for each in topic.partitions]
            topics.append(FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows))
        nodes = [FetchEndpoint(node_id=each, host=at.host, port=at.port) for each, at in self.brokers.items()]
        return FetchResponse(throttle_time_ms=0, responses=topics, node_endpoints=nodes)

    def _fetch_one(self, node_id: int, asked: FetchPartition) -> PartitionData:
        partition = self.partitions[asked.partition]
        row = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.end,
            last_stable_offset=partition.end,
            log_start_offset=partition.log_start,
            aborted_transactions=None,
            records=b"",
        )
        if partition.leader != node_id:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            row.current_leader = FetchLeader(leader_id=partition.leader, leader_epoch=partition.epoch)
        elif asked.current_leader_epoch > partition.epoch:
            row.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif asked.current_leader_epoch < partition.epoch:
            row.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif (end := self._divergence(partition, asked)) is not None:
            row.diverging_epoch = EpochEndOffset(epoch=0, end_offset=end)
        elif not partition.log_start <= asked.fetch_offset <= partition.end:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            row.records = self._read(partition, asked)
        return row

    def _divergence(self, partition: FakePartition, asked: FetchPartition) -> int | None:
        """Where the log of the asked epoch ended, if the consumer has read further than that."""
        if asked.last_fetched_epoch < 0:
            return None
        ends = [
            header.next_offset
            for batch in partition.batches
            for _, header in iter_headers(batch)
            if header.leader_epoch <= asked.last_fetched_epoch
        ]
        end = max(ends, default=partition.log_start)
        return end if end < asked.fetch_offset else None

    def _read(self, partition: FakePartition, asked: FetchPartition) -> bytes:
        chosen: list[bytes] = []
        size = 0
        for batch in partition.batches:
            ((_, header),) = iter_headers(batch)
            if header.next_offset <= asked.fetch_offset:
                continue
            if chosen and size + len(batch) > asked.partition_max_bytes:
                break
            chosen.append(batch)
            size += len(batch)
        return b"".join(chosen)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self.partitions[asked.partition_index]
                match asked.timestamp:
                    case -1:
                        offset = partition.end
                    case -2:
                        offset = partition.log_start
                    case timestamp:
                        later = (each.offset for each in partition.records() if each.timestamp >= timestamp)
                        offset = next(later, -1)
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=0, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)


class _Session:
    """One connection to a fake broker."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._receiver = framing.Receiver(bytearray(65536), frame_bytes_max=2**27)
        self._connection: Connection | None = None

    def connected(self, connection: Connection) -> None:
        self._connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        return self._receiver.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        assert self._connection is not None
        for frame in self._receiver.filled(count):
            request = framing.read_request(frame)
            assert isinstance(request, framing.Request), request
            response = self._cluster.answer(self._node_id, request.body())
            if response is not None:
                chunks = framing.encode_response(
                    response,
                    api_key=request.api_key,
                    version=request.version,
                    correlation_id=request.correlation_id,
                )
                self._connection.send(chunks)  # type: ignore[arg-type]  # there are no slices of files here

    def pause_sending(self) -> None:
        pass

    def resume_sending(self) -> None:
        pass

    def disconnected(self, error: Exception | None) -> None:
        self._connection = None
