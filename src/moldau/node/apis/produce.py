"""Produce: every batch is appended before the next request is looked at; the reply waits for the commit."""

from __future__ import annotations

from typing import Final

from moldau.metadata.image import INTERNAL_TOPICS
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicId
from moldau.node.apis import leaders
from moldau.node.apis.call import Call, Parts
from moldau.node.logs import get_logger
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import CODEC_MASK, Buffer
from moldau.wire.records.validation import RecordsRejected

log = get_logger(__name__)

ALL: Final = -1
NONE: Final = 0
_ACKS: Final = (ALL, NONE, 1)
_TOPIC_IDS: Final = 13
_LEADER_HINTS: Final = 10
_ZSTD: Final = 7
_NO_OFFSET: Final = -1
# Where the attributes' low byte stands in a batch, which holds the codec.
_ATTRIBUTES_AT: Final = 22


def handle(parts: Parts, call: Call) -> Response | None:
    """Append all batches, and answer when those that must be are committed."""
    request = call.body
    assert isinstance(request, ProduceRequest)
    if request.acks not in _ACKS:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; -1 (all), 0 and 1 are possible."
        )
    produced = _Produced(parts, call, request)
    for topic in request.topic_data:
        name = topic.name
        if call.version >= _TOPIC_IDS:
            name = parts.view.image.topic_names.get(TopicId(topic.topic_id)) or ""
        responses = [produced.append(name, partition) for partition in topic.partition_data]
        produced.topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
        )
    return produced.finish()


def refuse(call: Call, error: KafkaError) -> Response:
    """The error for every partition."""
    request = call.body
    assert isinstance(request, ProduceRequest)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(each.index, error) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=_NO_OFFSET, error_message=error.message
    )


def _is_zstd(records: Buffer) -> bool:
    return len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD


class _Produced:
    """One request while its batches wait to be committed."""

    __slots__ = ("_acks", "_call", "_deadline_ms", "_leaders", "_now_ms", "_parts", "_waiting", "topics")

    def __init__(self, parts: Parts, call: Call, request: ProduceRequest) -> None:
        clock = parts.world.clock
        self.topics: list[TopicProduceResponse] = []
        self._parts = parts
        self._call = call
        self._acks = request.acks
        self._now_ms = clock.wall_ms()
        self._deadline_ms = clock.now_ms() + max(request.timeout_ms, 0)
        # The reply counts as one of those that are waited for until all batches are appended.
        self._waiting = 1
        self._leaders: list[leaders.Hint] = []

    def append(self, topic: str, partition: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch; the response is complete once nobody waits any more."""
        try:
            return self._append(topic, partition)
        except RecordsRejected as rejected:
            response = _failed(partition.index, rejected)
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=each.index, batch_index_error_message=each.message)
                for each in rejected.record_errors
            ]
            return response
        except KafkaError as error:
            response = _failed(partition.index, error)
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._call.version >= _LEADER_HINTS:
                hint = leaders.hint(self._parts.view, topic, partition.index)
                if hint is not None:
                    self._leaders.append(hint)
                    response.current_leader = LeaderIdAndEpoch(
                        leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                    )
            return response
        except OSError as error:
            # The log is as it was; there may be room again later.
            log.limited(
                "append failed", key=f"{topic}-{partition.index}", now_ms=self._now_ms, error=str(error)
            )
            return _failed(partition.index, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _append(self, topic: str, partition: PartitionProduceData) -> PartitionProduceResponse:
        parts, call = self._parts, self._call
        if not topic and call.version >= _TOPIC_IDS:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not call.may(parts, Operation.WRITE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic in INTERNAL_TOPICS:
            # Whoever keeps its state there knows only of what it has written itself.
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: only brokers write it."
            )
        records = partition.records
        if not records:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "A partition takes exactly one batch, and none was given."
            )
        if call.version < _ZSTD and _is_zstd(records):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {_ZSTD} of Produce."
            )
        replica, leader = parts.partitions.led(parts.view, topic, partition.index)
        if not parts.partitions.has_room:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is nearly full.")
        appended = leader.append(records, needs_all=self._acks == ALL, now_ms=self._now_ms)
        response = PartitionProduceResponse(
            index=partition.index,
            error_code=ErrorCode.NONE,
            base_offset=appended.first_offset,
            log_append_time_ms=appended.log_append_time,
            log_start_offset=replica.log.log_start_offset,
        )
        parts.partitions.appended(replica)
        if self._acks == ALL and appended.end_offset > replica.log.high_watermark:
            self._waiting += 1
            replica.waiting.for_commit(
                appended.end_offset,
                deadline_ms=self._deadline_ms,
                told=lambda error: self._told(response, error),
            )
        return response

    def _told(self, response: PartitionProduceResponse, error: ErrorCode) -> None:
        """A batch is committed, or its producer must not count on it."""
        if error is not ErrorCode.NONE:
            response.error_code = error
            response.base_offset = _NO_OFFSET
        self._waiting -= 1
        if not self._waiting:
            self._call.answer(self._response())

    def finish(self) -> Response | None:
        """The response, if it can be given now."""
        self._waiting -= 1
        if self._acks == NONE:
            self._answer_nothing()
            return None
        return None if self._waiting else self._response()

    def _answer_nothing(self) -> None:
        failed = [
            ErrorCode(each.error_code).name
            for topic in self.topics
            for each in topic.partition_responses
            if each.error_code
        ]
        if failed:
            # The only way to tell a producer that wants no reply: it then asks for metadata.
            self._call.asker.break_off(f"acks=0 and {', '.join(failed)}")
        else:
            self._call.answer(None)

    def _response(self) -> Response:
        endpoints = []
        if self._leaders:
            listener = self._call.listener.name
            at = leaders.places(self._parts.view, (each.leader_id for each in self._leaders), listener)
            endpoints = [NodeEndpoint(**place._asdict()) for place in at]
        return ProduceResponse(responses=self.topics, node_endpoints=endpoints)
