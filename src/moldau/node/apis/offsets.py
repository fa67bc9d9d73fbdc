"""Offsets of partitions: found by time or by leader epoch, and the lowest one raised by deleting records."""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.log.epochs import UNDEFINED_EPOCH
from moldau.log.segment import TimedOffset
from moldau.metadata.image import INTERNAL_TOPICS
from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.node.partitions import Replica
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.replica.leader import Isolation
from moldau.wire.message import Response
from moldau.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

_CONSUMER: Final = -1
# Somebody who looks at any replica, leader or not.
_DEBUGGER: Final = -2

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
# From which version on a timestamp means something other than a time.
_KNOWN_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_TELLS_EPOCHS: Final = 4
_KNOWS_OFFSET_NOT_AVAILABLE: Final = 5

_NO_TIMESTAMP: Final = -1
_NO_OFFSET: Final = -1
_HIGH_WATERMARK: Final = -1
_NOTHING_FOUND: Final = TimedOffset(_NO_OFFSET, _NO_TIMESTAMP, UNDEFINED_EPOCH)
_ISOLATIONS: Final = {isolation.value: isolation for isolation in Isolation}


# ---------------------------------------------------------------------------------------------- by time


def list_offsets(parts: Parts, call: Call) -> Response:
    """The offsets that belong to times, or to the ends of partitions."""
    request = call.body
    assert isinstance(request, ListOffsetsRequest)
    if request.isolation_level not in _ISOLATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no isolation level {request.isolation_level}.")
    times_asked = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    topics = []
    for topic in request.topics:
        is_allowed = call.may(parts, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        for asked in topic.partitions:
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if times_asked[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answers.append(_offset_found(parts, call, request, topic.name, asked))
            except KafkaError as error:
                code = error.code
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < _KNOWS_OFFSET_NOT_AVAILABLE:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _offset_found(
    parts: Parts, call: Call, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and call.version < _KNOWN_SINCE.get(asked.timestamp, call.version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    replica = _replica(parts, request, topic, asked)
    isolation = _ISOLATIONS[request.isolation_level] if request.replica_id == _CONSUMER else None
    found = _find(replica, asked.timestamp, isolation)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if call.version >= _TELLS_EPOCHS else UNDEFINED_EPOCH,
    )


def _replica(parts: Parts, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition) -> Replica:
    """The replica to look at: the leader's, unless whoever asks takes any."""
    local = parts.partitions.find(topic, asked.partition_index)
    if request.replica_id == _DEBUGGER and local is not None and local.leader is None:
        return local
    replica, leader = parts.partitions.led(parts.view, topic, asked.partition_index)
    leader.check_epoch(asked.current_leader_epoch)
    return replica


def _find(replica: Replica, timestamp: int, isolation: Isolation | None) -> TimedOffset:
    """What was asked for, as far as the reader may see; without an isolation everything may be seen."""
    log, leader = replica.log, replica.leader
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        epoch = log.epochs.epoch_at(log.log_start_offset)
        return TimedOffset(log.log_start_offset, _NO_TIMESTAMP, UNDEFINED_EPOCH if epoch is None else epoch)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        # Nothing of any log is elsewhere than here.
        return _NOTHING_FOUND
    if isolation is None or leader is None:
        found = _find_before(log.log_end_offset, replica, timestamp)
    else:
        found = _find_before(leader.end_for(isolation), replica, timestamp)
        if found is None or timestamp == _LATEST:
            # More may be committed already, only that this leader does not know it yet.
            leader.check_high_watermark_is_known()
    return _NOTHING_FOUND if found is None else found


def _find_before(end: int, replica: Replica, timestamp: int) -> TimedOffset | None:
    log = replica.log
    if timestamp == _LATEST:
        return TimedOffset(end, _NO_TIMESTAMP, replica.leader_epoch)
    by_time = timestamp != _MAX_TIMESTAMP
    found = log.offset_for_timestamp(timestamp) if by_time else log.offset_of_max_timestamp()
    return found if found is not None and found.offset < end else None


# --------------------------------------------------------------------------------------- by leader epoch


def offset_for_leader_epoch(parts: Parts, call: Call) -> Response:
    """Where leader epochs ended, by which replicas and consumers find out where logs diverge."""
    request = call.body
    assert isinstance(request, OffsetForLeaderEpochRequest)
    is_node = call.may(parts, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    topics = []
    for topic in request.topics:
        is_allowed = is_node or call.may(parts, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        answers = []
        for asked in topic.partitions:
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answers.append(_epoch_end(parts, topic.topic, asked))
            except KafkaError as error:
                answers.append(EpochEndOffset(error_code=error.code, partition=asked.partition))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _epoch_end(parts: Parts, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    replica, leader = parts.partitions.led(parts.view, topic, asked.partition)
    leader.check_epoch(asked.current_leader_epoch)
    end = replica.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )


# ------------------------------------------------------------------------------------- deleting records


async def delete_records(parts: Parts, call: Call) -> Response:
    """Let logs begin later; once that is answered, no crash brings the records back."""
    request = call.body
    assert isinstance(request, DeleteRecordsRequest)
    topics = []
    starts: dict[Replica, int] = {}
    for topic in request.topics:
        is_allowed = call.may(parts, Operation.DELETE, ResourceType.TOPIC, topic.name)
        answers = []
        for asked in topic.partitions:
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                replica, offset = _start_asked_for(parts, topic.name, asked)
                starts[replica] = low_watermark = max(offset, starts.get(replica, 0))
                code = ErrorCode.NONE
            except KafkaError as error:
                low_watermark, code = _NO_OFFSET, error.code
            answers.append(
                DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    if starts:
        try:
            await parts.partitions.advance_log_starts(starts)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _start_asked_for(parts: Parts, topic: str, asked: DeleteRecordsPartition) -> tuple[Replica, int]:
    """A replica, and where its log is to start; not before it starts now."""
    replica, _ = parts.partitions.led(parts.view, topic, asked.partition_index)
    log = replica.log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not log.config.is_deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return replica, max(offset, log.log_start_offset)
