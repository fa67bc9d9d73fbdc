"""A controller that is asked as a node would ask it, with a standby that hears nothing but the records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.metadata.bootstrap import bootstrap_records
from moldau.metadata.controller.decisions import Circumstances, ControllerDecision
from moldau.metadata.controller.state import Controller
from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.metadata.image import Delta, Image, Partition, Topic
from moldau.model.ids import ClusterId, Epoch, NodeId, Offset, TopicName, Uuid
from moldau.wire.message import MetadataRecord, Request, Response
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
from moldau.wire.messages.internal_logs import decode_metadata_record, encode_metadata_record
from moldau.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CLUSTER_ID = ClusterId("a-cluster")
LISTENER = "PLAINTEXT"
EPOCH = Epoch(1)
SESSION_MS = 9000


def directory_of(node_id: int, number: int = 0) -> Uuid:
    """The id of a log directory of a broker."""
    return Uuid(bytes([1, node_id, number]).ljust(16, b"d"))


def incarnation(number: int) -> Uuid:
    """The id of a broker's run."""
    return Uuid(bytes([number]).ljust(16, b"i"))


@dataclass
class Cluster:
    """An active controller and a standby; time passes and the log grows as the test says."""

    static: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)
    now_ms: int = 0
    log: list[MetadataRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.active = self._controller()
        self.standby = self._controller()
        self.active.activate(self.now_ms)
        self.append(bootstrap_records(static=self.static, levels=self.levels))

    def _controller(self) -> Controller:
        return Controller(Image(), cluster_id=CLUSTER_ID, node_id=NodeId(1), static=self.static)

    @property
    def image(self) -> Image:
        return self.active.image

    @property
    def next_offset(self) -> Offset:
        return Offset(len(self.log))

    def ask(self, request: Request) -> Response:
        """Decide, append, apply, reply."""
        seed = b"seed" + len(self.log).to_bytes(8, "big") + self.now_ms.to_bytes(8, "big")
        decision = self.active.decide(request, Circumstances(self.now_ms, self.next_offset, seed))
        # Whatever is answered or written must have a form on the wire.
        decision.reply.encode(type(decision.reply).declaration.versions.highest)
        self.append(decision.records)
        return decision.reply

    def append(self, records: Iterable[MetadataRecord]) -> Delta:
        """Append as the node does: the active applies what it has made, the standby what it reads."""
        made = list(records)
        read = [_read_back(record) for record in made]
        self.log += made
        offset = Offset(len(self.log) - 1)
        delta = self.active.replay(made, offset=offset, epoch=EPOCH)
        self.standby.replay(read, offset=offset, epoch=EPOCH)
        return delta

    def carry_out(self, decision: ControllerDecision[None]) -> int:
        """Append what nobody asked for; gives the number of records."""
        self.append(decision.records)
        return len(decision.records)

    # ------------------------------------------------------------------------------------------ brokers

    def register(
        self, node_id: int, *, rack: str | None = None, run: int = 1, directories: int = 1
    ) -> BrokerRegistrationResponse:
        reply = self.ask(registration(node_id, rack=rack, run=run, directories=directories))
        assert isinstance(reply, BrokerRegistrationResponse)
        return reply

    def heartbeat(
        self,
        node_id: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        metadata_offset: int | None = None,
        offline: Iterable[Uuid] = (),
    ) -> BrokerHeartbeatResponse:
        reply = self.ask(
            BrokerHeartbeatRequest(
                broker_id=node_id,
                broker_epoch=self.image.brokers[NodeId(node_id)].epoch,
                current_metadata_offset=len(self.log) - 1 if metadata_offset is None else metadata_offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=list(offline),
            )
        )
        assert isinstance(reply, BrokerHeartbeatResponse)
        return reply

    def start(self, *node_ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Brokers that have registered and are unfenced."""
        for node_id in node_ids:
            self.register(node_id, rack=(racks or {}).get(node_id))
            assert not self.heartbeat(node_id).is_fenced

    def fence(self, *node_ids: int) -> None:
        for node_id in node_ids:
            assert self.heartbeat(node_id, want_fence=True).is_fenced

    # ------------------------------------------------------------------------------------------- topics

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsResponse:
        reply = self.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only))
        assert isinstance(reply, CreateTopicsResponse)
        return reply

    def create_on(
        self, name: str, *assignments: Iterable[int], configs: Mapping[str, str] | None = None
    ) -> None:
        """A topic with replicas where the test wants them."""
        reply = self.create(new_topic(name, assignments=assignments, configs=configs))
        assert [each.error_code for each in reply.topics] == [0], reply.topics

    def topic(self, name: str) -> Topic:
        return self.image.topics[TopicName(name)]

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.topic(name).partitions[index]

    def alter(
        self, resource_type: int, resource_name: str, *changes: tuple[str, int, str | None]
    ) -> tuple[int, str | None]:
        """Change settings of one resource; gives the error code and message."""
        reply = self.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=resource_type,
                        resource_name=resource_name,
                        configs=[
                            IncrementalAlterConfigsAlterableConfig(name=name, config_operation=op, value=text)
                            for name, op, text in changes
                        ],
                    )
                ],
                validate_only=False,
            )
        )
        assert isinstance(reply, IncrementalAlterConfigsResponse)
        (result,) = reply.responses
        return result.error_code, result.error_message


def registration(
    node_id: int,
    *,
    rack: str | None = None,
    run: int = 1,
    directories: int = 1,
    cluster_id: str = CLUSTER_ID,
    levels: Mapping[str, tuple[int, int]] | None = None,
) -> BrokerRegistrationRequest:
    """The request of a broker of this release, with other levels where the test says so."""
    ranges = {each.name: (each.lowest, each.highest) for each in SUPPORTED_FEATURES} | dict(levels or {})
    return BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation(run),
        listeners=[Listener(name=LISTENER, host=f"host{node_id}", port=9092, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in ranges.items()
        ],
        rack=rack,
        log_dirs=[directory_of(node_id, number) for number in range(directories)],
    )


def new_topic(
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Iterable[Iterable[int]] = (),
    configs: Mapping[str, str] | None = None,
) -> CreatableTopic:
    """A topic to create; with assignments the numbers are left to them."""
    by_hand = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(broker_ids))
        for index, broker_ids in enumerate(assignments)
    ]
    return CreatableTopic(
        name=name,
        num_partitions=-1 if by_hand else partitions,
        replication_factor=-1 if by_hand else replicas,
        assignments=by_hand,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()],
    )


def _read_back(record: MetadataRecord) -> MetadataRecord:
    version = type(record).declaration.versions.highest
    return decode_metadata_record(encode_metadata_record(record, version))[0]
