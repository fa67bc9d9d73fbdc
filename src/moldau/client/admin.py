"""Looking at and changing a cluster: topics, settings, offsets, groups, quotas, features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.errors import ClientError, check, code_of
from moldau.client.groups import GroupAdmin
from moldau.client.metadata import Broker, TopicView
from moldau.client.offsets import OffsetFound, list_offsets, place_of
from moldau.client.settings import READ_UNCOMMITTED
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, TopicPartition
from moldau.wire.message import Request, Response
from moldau.wire.messages.brokers import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from moldau.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)
from moldau.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

R = TypeVar("R", bound=Response)

# A user, client id or both, by the names of Kafka's entity types; None is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]

_DELETE_BY_STATE_SINCE = 6


class ResourceType(IntEnum):
    """What a setting can belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does with a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster, `replicas` places each partition by hand."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a setting has, or would have, from one source."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as DescribeConfigs shows it; a secret has no value."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int
    documentation: str | None
    # Where a value can come from, what counts first; empty if not asked for.
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The brokers of a cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A data directory of a broker, and the bytes of each partition in it; -1 where it does not say."""

    path: str
    total_bytes: int
    usable_bytes: int
    partitions: Mapping[TopicPartition, int]


class Admin(GroupAdmin):
    """Every method asks until it has an answer or default.api.timeout.ms are over, and raises ClientError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.settings.request_timeout_ms

    async def send(self, request: Request, reply: type[R], *, node_id: int | None = None) -> R:
        """Any request at all, to one broker or to any; errors inside the reply are the caller's."""

        async def attempt() -> R:
            cluster = self._cluster
            connection = await (
                cluster.any_connection() if node_id is None else cluster.connection_to(node_id)
            )
            return await cluster.ask_at(connection, request, reply)

        return await self._cluster.retrying(attempt)

    # ---------------------------------------------------------------- topics

    async def create_topics(self, *topics: NewTopic, validate_only: bool = False) -> None:
        """Create topics; the first that cannot be created raises."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def check_reply(response: CreateTopicsResponse) -> None:
            for row in response.topics:
                _check(row.error_code, row.error_message, row.name)

        await self._cluster.ask_any(request, CreateTopicsResponse, check_reply)

    async def delete_topics(self, *names: str) -> None:
        """Delete topics with all their records."""

        async def attempt() -> None:
            connection = await self._cluster.any_connection()
            request = DeleteTopicsRequest(timeout_ms=self._timeout_ms)
            if connection.version_of(DeleteTopicsRequest) >= _DELETE_BY_STATE_SINCE:
                request.topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
            else:
                request.topic_names = list(names)
            response = await self._cluster.ask_at(connection, request, DeleteTopicsResponse)
            for row in response.responses:
                _check(row.error_code, row.error_message, row.name or "")

        await self._cluster.retrying(attempt)

    async def list_topics(self) -> dict[str, TopicView]:
        """All topics, by name."""
        await self._cluster.retrying(lambda: self._cluster.refresh(None))
        return dict(sorted(self._cluster.metadata.topics.items()))

    async def describe_topics(self, *names: str) -> dict[str, TopicView]:
        """These topics; UNKNOWN_TOPIC_OR_PARTITION if one does not exist."""
        await self._cluster.retrying(lambda: self._cluster.refresh(names))
        metadata = self._cluster.metadata
        for name in names:
            if name not in metadata.topics:
                check(metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), where=name)
        return {name: metadata.topics[name] for name in names}

    async def add_partitions(
        self, topic: str, count: int, *, replicas: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> None:
        """Let a topic have `count` partitions in all; `replicas` places the new ones by hand."""
        placed = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=placed or None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def check_reply(response: CreatePartitionsResponse) -> None:
            for row in response.results:
                _check(row.error_code, row.error_message, row.name)

        await self._cluster.ask_any(request, CreatePartitionsResponse, check_reply)

    # ---------------------------------------------------------------- offsets and records

    async def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetFound]:
        """The first offset at or after a time in ms, or at LATEST, EARLIEST or MAX_TIMESTAMP."""
        places = {place_of(place): timestamp for place, timestamp in wanted.items()}
        return await list_offsets(
            self._cluster, places, isolation_level=isolation_level, timeout_ms=timeout_ms
        )

    async def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets (-1: everything); gives where the logs start now."""
        offsets = {place_of(place): offset for place, offset in before.items()}

        async def ask(
            connection: BrokerConnection, partitions: Sequence[TopicPartition]
        ) -> dict[TopicPartition, int | ClientError]:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for each in partitions:
                row = DeleteRecordsPartition(partition_index=each.partition, offset=offsets[each])
                topics.setdefault(each.topic, []).append(row)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()],
                timeout_ms=self._timeout_ms,
            )
            response = await self._cluster.ask_at(connection, request, DeleteRecordsResponse)
            found: dict[TopicPartition, int | ClientError] = {}
            for topic in response.topics:
                for answer in topic.partitions:
                    place = place_of((topic.name, answer.partition_index))
                    code = code_of(answer.error_code)
                    is_done = code == ErrorCode.NONE
                    found[place] = answer.low_watermark if is_done else ClientError(code, where=place)
            return found

        return await self._cluster.ask_leaders(offsets, ask)

    # ---------------------------------------------------------------- settings

    async def describe_configs(
        self,
        kind: ResourceType,
        name: str,
        *,
        names: Iterable[str] | None = None,
        with_synonyms: bool = False,
    ) -> dict[str, ConfigEntry]:
        """The settings of a topic, broker or other resource, all or those named."""
        resource = DescribeConfigsResource(
            resource_type=kind,
            resource_name=name,
            configuration_keys=None if names is None else list(names),
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=with_synonyms)

        def check_reply(response: DescribeConfigsResponse) -> None:
            for row in response.results:
                _check(row.error_code, row.error_message, f"{kind.name.lower()} {name}")

        response = await self._ask_resource(kind, name, request, DescribeConfigsResponse, check_reply)
        return {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source,
                entry.read_only,
                entry.is_sensitive,
                entry.config_type,
                entry.documentation,
                tuple(ConfigSynonym(row.name, row.value, row.source) for row in entry.synonyms),
            )
            for entry in response.results[0].configs
        }

    async def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        changes: Mapping[str, str | tuple[AlterOperation, str] | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some settings and leave the others: a text sets, None resets, a pair says what to do."""
        configs = []
        for setting, change in changes.items():
            operation, value = (
                change
                if isinstance(change, tuple)
                else (AlterOperation.DELETE if change is None else AlterOperation.SET, change)
            )
            configs.append(
                IncrementalAlterConfigsAlterableConfig(name=setting, config_operation=operation, value=value)
            )
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            ],
            validate_only=validate_only,
        )

        def check_reply(response: IncrementalAlterConfigsResponse) -> None:
            for row in response.responses:
                _check(row.error_code, row.error_message, f"{kind.name.lower()} {name}")

        await self._ask_resource(kind, name, request, IncrementalAlterConfigsResponse, check_reply)

    async def _ask_resource(
        self,
        kind: ResourceType,
        name: str,
        request: Request,
        reply: type[R],
        check_reply: Callable[[R], None],
    ) -> R:
        """A broker answers for its own settings; for all others any broker does."""
        is_of_broker = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name != ""
        if not is_of_broker:
            return await self._cluster.ask_any(request, reply, check_reply)
        if not (name.isascii() and name.isdigit()):
            raise ClientError(
                ErrorCode.INVALID_REQUEST, "A broker is named by its id, which is a whole number.", where=name
            )
        response = await self.send(request, reply, node_id=int(name))
        check_reply(response)
        return response

    # ---------------------------------------------------------------- the cluster

    async def describe_cluster(self) -> ClusterView:
        """The brokers as they are now."""
        await self._cluster.retrying(self._cluster.refresh)
        metadata = self._cluster.metadata
        brokers = tuple(broker for _, broker in sorted(metadata.brokers.items()))
        return ClusterView(metadata.cluster_id, metadata.controller_id, brokers)

    async def describe_log_dirs(self, node_id: int) -> list[LogDirectory]:
        """The data directories of one broker."""
        response = await self.send(
            DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node_id=node_id
        )
        check(response.error_code, where=f"broker {node_id}")
        directories: list[LogDirectory] = []
        for row in response.results:
            check(row.error_code, where=row.log_dir)
            sizes = {
                place_of((topic.name, each.partition_index)): each.partition_size
                for topic in row.topics
                for each in topic.partitions
                if not each.is_future_key
            }
            directories.append(LogDirectory(row.log_dir, row.total_bytes, row.usable_bytes, sizes))
        return directories

    async def features(self) -> dict[str, int]:
        """The levels of the features that the cluster has finalised."""
        return dict((await self._cluster.any_connection()).features)

    async def update_features(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Finalise features at these levels; 0 disables one."""
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()
            ],
            validate_only=validate_only,
        )

        def check_reply(response: UpdateFeaturesResponse) -> None:
            check(response.error_code, response.error_message)
            for row in response.results:
                _check(row.error_code, row.error_message, row.feature)

        await self._cluster.ask_any(request, UpdateFeaturesResponse, check_reply)

    # ---------------------------------------------------------------- quotas

    async def describe_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """All client quotas."""
        response = await self._cluster.ask_any(
            DescribeClientQuotasRequest(components=[], strict=False),
            DescribeClientQuotasResponse,
            lambda reply: check(reply.error_code, reply.error_message),
        )
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                row.key: row.value for row in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of a user or client id; None removes one."""
        entry = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
            ],
        )

        def check_reply(response: AlterClientQuotasResponse) -> None:
            for row in response.entries:
                check(row.error_code, row.error_message)

        await self._cluster.ask_any(
            AlterClientQuotasRequest(entries=[entry], validate_only=False),
            AlterClientQuotasResponse,
            check_reply,
        )


def _check(number: int, message: str | None, where: str) -> None:
    # Whoever administers the cluster knows its topics, so that asking again for one it lacks does not help.
    check(number, message, where=where, is_final=number == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _creatable(topic: NewTopic) -> CreatableTopic:
    placed = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
        for index, brokers in enumerate(topic.replicas)
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=placed,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
