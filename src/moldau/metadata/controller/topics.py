"""Topics: creating them, deleting them, and giving them more partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Final

from moldau.metadata.controller.decisions import (
    RECORDS_PER_REQUEST_MAX,
    Circumstances,
    ControllerDecision,
    decided,
    repeated,
)
from moldau.metadata.image import Image, NodeIds, Partition, ResourceType, Topic
from moldau.metadata.placement import place
from moldau.metadata.view import (
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    NUM_PARTITIONS,
    ClusterView,
)
from moldau.model.draws import Draws
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import (
    ZERO_UUID,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
    check_topic_name,
    topic_collision_key,
    uuid_to_text,
)
from moldau.model.settings.resolve import Settings
from moldau.model.settings.setting import InvalidSetting
from moldau.model.settings.types import text_of
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.metadata_records import ConfigRecord, RemoveTopicRecord
from moldau.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

METADATA_TOPIC: Final = "__cluster_metadata"
# The number in a request that leaves it to the cluster.
_DEFAULT: Final = -1

# ------------------------------------------------------------------------------------------------- creating


def create_topics(
    view: ClusterView, request: CreateTopicsRequest, at: Circumstances
) -> ControllerDecision[CreateTopicsResponse]:
    """Create those topics that can be created; each gets its own result."""
    draws = at.draws()
    duplicates = repeated(topic.name for topic in request.topics)
    created: dict[str, TopicName] = {}
    # Topics that are created together mostly have the same settings, of which there are many to describe.
    described: _Described = {}
    records: list[MetadataRecord] = []
    results = [
        _not_created(
            name, KafkaError(ErrorCode.INVALID_REQUEST, f"The request names the topic {name!r} twice.")
        )
        for name in duplicates
    ]
    for asked in request.topics:
        if asked.name in duplicates:
            continue
        try:
            _check_new_name(asked.name, view, created)
            result, topic_records = _create(view, asked, draws, described)
        except KafkaError as refused:
            results.append(_not_created(asked.name, refused))
            continue
        name = TopicName(asked.name)
        created[topic_collision_key(name)] = name
        results.append(result)
        records += topic_records
        if len(records) > RECORDS_PER_REQUEST_MAX:
            # That is too much whatever comes yet.
            break
    reply = CreateTopicsResponse(throttle_time_ms=0, topics=results)
    return decided(reply, records, is_trial=request.validate_only)


def _check_new_name(name: str, view: ClusterView, created: Mapping[str, TopicName]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The topic {name!r} is the cluster's own.")
    checked = check_topic_name(name)
    if checked in view.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
    colliding = created.get(topic_collision_key(checked)) or _colliding(view.image, checked)
    if colliding is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {name!r} collides with {colliding!r}: metric names do not tell '.' from '_'.",
        )


def _colliding(image: Image, name: TopicName) -> TopicName | None:
    """A topic that differs from the name only in '.' and '_'; it begins as the name does up to the first."""
    prefix = re.split("[._]", name, maxsplit=1)[0]
    if prefix == name:
        return None
    key = topic_collision_key(name)
    candidates = takewhile(lambda each: each.startswith(prefix), image.topics.keys_from(TopicName(prefix)))
    return next((each for each in candidates if topic_collision_key(each) == key), None)


_Described = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]


def _create(
    view: ClusterView, asked: CreatableTopic, draws: Draws, described: _Described
) -> tuple[CreatableTopicResult, list[MetadataRecord]]:
    texts = _texts(asked)
    key = tuple(sorted(texts.items()))
    if key not in described:
        described[key] = _describe(view.topic_settings(texts))
    partitions = _assigned_by_hand(view, asked) if asked.assignments else _placed(view, asked, draws)
    topic = Topic(TopicName(asked.name), TopicId(draws.uuid()), tuple(partitions))
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=described[key],
    )
    records: list[MetadataRecord] = [topic.to_record()]
    for name, text in key:
        records.append(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=text)
        )
    for index, partition in enumerate(partitions):
        records.append(partition.to_record(topic.id, PartitionIndex(index)))
    return result, records


def _describe(settings: Settings) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=text_of(entry.candidates[0].value),
            read_only=False,
            config_source=entry.candidates[0].source,
            is_sensitive=entry.setting.is_sensitive,
        )
        for entry in settings.entries()
    ]


def _texts(asked: CreatableTopic) -> dict[str, str]:
    texts = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidSetting(f"The setting {config.name} of the topic {asked.name!r} has no value.")
        texts[config.name] = config.value
    return texts


def _placed(view: ClusterView, asked: CreatableTopic, draws: Draws) -> list[Partition]:
    if asked.replication_factor == 0 or asked.replication_factor < _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be positive, or -1 for a default, not {asked.replication_factor}.",
        )
    if asked.num_partitions == 0 or asked.num_partitions < _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions must be positive, or -1 for the default, not {asked.num_partitions}.",
        )
    _check_addition(asked.num_partitions)
    count, factor = asked.num_partitions, asked.replication_factor
    placed = place(
        view.image.brokers.values(),
        partition_count=view.number(NUM_PARTITIONS) if count == _DEFAULT else count,
        replication_factor=view.number(DEFAULT_REPLICATION_FACTOR) if factor == _DEFAULT else factor,
        draws=draws,
    )
    return [_placed_partition(view, replicas) for replicas in placed]


def _check_addition(partition_count: int) -> None:
    """Refuse what no request may ask for before any of it is placed."""
    if partition_count > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request can make {RECORDS_PER_REQUEST_MAX} partitions, not {partition_count}.",
        )


def _placed_partition(view: ClusterView, replicas: NodeIds) -> Partition:
    partition = _new_partition(view, replicas)
    if partition is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replicas cannot be placed: all of the brokers {list(replicas)} are fenced or shutting down.",
        )
    return partition


def _assigned_by_hand(view: ClusterView, asked: CreatableTopic) -> list[Partition]:
    if asked.replication_factor != _DEFAULT or asked.num_partitions != _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With replicas assigned by hand, the number of partitions and the replication factor must be -1, "
            f"not {asked.num_partitions} and {asked.replication_factor}.",
        )
    assignments = {each.partition_index: each.broker_ids for each in asked.assignments}
    if len(assignments) < len(asked.assignments):
        twice = repeated(each.partition_index for each in asked.assignments)
        raise _unassignable(f"partition {twice[0]} is assigned twice")
    if sorted(assignments) != list(range(len(assignments))):
        raise _unassignable(f"the partitions {sorted(assignments)} do not count up from 0")
    factor = len(assignments[0])
    return [
        partition_by_hand(view, assignments[index], index=index, replication_factor=factor)
        for index in range(len(assignments))
    ]


def partition_by_hand(
    view: ClusterView, broker_ids: Iterable[int], *, index: int, replication_factor: int
) -> Partition:
    """A new partition on these brokers; INVALID_REPLICA_ASSIGNMENT if they cannot hold it."""
    replicas = check_replicas(view, broker_ids)
    if len(replicas) != replication_factor:
        raise _unassignable(
            f"partition {index} has {len(replicas)} replicas, and the others have {replication_factor}"
        )
    partition = _new_partition(view, replicas)
    if partition is None:
        raise _unassignable(
            f"all of the brokers {list(replicas)} of partition {index} are fenced or shutting down"
        )
    return partition


def check_replicas(view: ClusterView, broker_ids: Iterable[int]) -> NodeIds:
    """The brokers, if each is registered and named once; INVALID_REPLICA_ASSIGNMENT otherwise."""
    replicas = tuple(NodeId(each) for each in broker_ids)
    if not replicas:
        raise _unassignable("a list of replicas is empty")
    twice = repeated(replicas)
    if twice:
        raise _unassignable(f"broker {twice[0]} is named twice in {list(replicas)}")
    for node_id in replicas:
        if node_id not in view.image.brokers:
            raise _unassignable(f"no broker {node_id} is registered")
    return replicas


def _unassignable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas cannot be assigned so: {why}.")


def _new_partition(view: ClusterView, replicas: NodeIds) -> Partition | None:
    """A partition with the active ones of its replicas in sync; None if none is active."""
    isr = tuple(node_id for node_id in replicas if view.is_active(node_id))
    if not isr:
        return None
    brokers = view.image.brokers
    return Partition(
        replicas=replicas,
        directories=tuple(brokers[node_id].default_directory for node_id in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
    )


def _not_created(name: str, why: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=why.code, error_message=why.message)


# ------------------------------------------------------------------------------------------------- deleting


def delete_topics(
    view: ClusterView, request: DeleteTopicsRequest
) -> ControllerDecision[DeleteTopicsResponse]:
    """Delete topics by name or by id; each gets its own result."""
    if not view.broker_settings[DELETE_TOPIC_ENABLE]:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    asked = [
        *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names),
        *request.topics,
    ]
    twice = repeated((each.name, each.topic_id) for each in asked)
    results = []
    deleted: dict[TopicId, Topic] = {}
    for name, topic_id in dict.fromkeys((each.name, each.topic_id) for each in asked):
        try:
            if (name, topic_id) in twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the topic twice.")
            topic = _topic_to_delete(view, name, TopicId(topic_id))
            if topic.id in deleted:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The request names the topic {topic.name!r} by name and by id.",
                )
        except KafkaError as refused:
            results.append(
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=refused.code, error_message=refused.message
                )
            )
            continue
        deleted[topic.id] = topic
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE))
    records = [RemoveTopicRecord(topic_id=topic_id) for topic_id in deleted]
    return decided(DeleteTopicsResponse(throttle_time_ms=0, responses=results), records)


def _topic_to_delete(view: ClusterView, name: str | None, topic_id: TopicId) -> Topic:
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The topic {name!r} is named by name and by id.")
    if name is not None:
        topic = view.image.topics.get(TopicName(name))
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
        return topic
    if topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named neither by name nor by id.")
    topic = view.image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {uuid_to_text(topic_id)}."
        )
    return topic


# ----------------------------------------------------------------------------------------- more partitions


def create_partitions(
    view: ClusterView, request: CreatePartitionsRequest, at: Circumstances
) -> ControllerDecision[CreatePartitionsResponse]:
    """Give topics more partitions; each topic gets its own result."""
    draws = at.draws()
    duplicates = repeated(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"The request names the topic {name!r} twice.",
        )
        for name in duplicates
    ]
    for asked in request.topics:
        if asked.name in duplicates:
            continue
        try:
            records += _grow(view, asked, draws)
        except KafkaError as refused:
            results.append(
                CreatePartitionsTopicResult(
                    name=asked.name, error_code=refused.code, error_message=refused.message
                )
            )
            continue
        results.append(CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE))
    reply = CreatePartitionsResponse(throttle_time_ms=0, results=results)
    return decided(reply, records, is_trial=request.validate_only)


def _grow(view: ClusterView, asked: CreatePartitionsTopic, draws: Draws) -> list[MetadataRecord]:
    topic = view.image.topics.get(TopicName(asked.name))
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {asked.name!r}.")
    present = len(topic.partitions)
    added = asked.count - present
    if added <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name!r} has {present} partitions, so {asked.count} would not be an increase.",
        )
    _check_addition(added)
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        placed = place(
            view.image.brokers.values(), partition_count=added, replication_factor=factor, draws=draws
        )
        partitions = [_placed_partition(view, replicas) for replicas in placed]
    else:
        if len(asked.assignments) != added:
            raise _unassignable(f"{added} partitions are added, and {len(asked.assignments)} are assigned")
        partitions = [
            partition_by_hand(view, each.broker_ids, index=present + step, replication_factor=factor)
            for step, each in enumerate(asked.assignments)
        ]
    return [
        partition.to_record(topic.id, PartitionIndex(present + step))
        for step, partition in enumerate(partitions)
    ]
