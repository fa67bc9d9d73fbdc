"""Producers: their ids, and what partitions know of them."""

from __future__ import annotations

from typing import Final

from moldau.log.producers import Producer
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import check_topic_name
from moldau.node.apis.call import Call, Parts
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.txn import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_PRODUCER_ID: Final = -1
_NO_EPOCH: Final = -1
_NO_OFFSET: Final = -1


async def init_producer_id(parts: Parts, call: Call) -> Response:
    """A fresh id for a producer that numbers its batches."""
    request = call.body
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None:
        _check_may_be_idempotent(parts, call)
    elif not call.may(parts, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        # There is no coordinator of transactions. An error that says so makes clients look for one again and
        # again; at this one they give up, and it is true enough: what they ask for is not served here.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    # Who has an id already gets another one: without a transactional id nobody can tell whose it was.
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        producer_id=await parts.producer_ids.next(),
        producer_epoch=0,
    )


def _check_may_be_idempotent(parts: Parts, call: Call) -> None:
    """Who may write to any topic may number the batches too (KIP-679)."""
    if call.may(parts, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return
    topics = parts.view.image.topics
    if not any(call.may(parts, Operation.WRITE, ResourceType.TOPIC, name) for name in topics):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def describe_producers(parts: Parts, call: Call) -> Response:
    """Who writes to partitions; any replica can tell, as an operator may ask a certain broker."""
    request = call.body
    assert isinstance(request, DescribeProducersRequest)
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partition_indexes:
            try:
                producers = _producers(parts, call, topic.name, partition)
                code, message = ErrorCode.NONE, None
            except KafkaError as error:
                producers, code, message = [], error.code, error.message
            answers.append(
                PartitionResponse(
                    partition_index=partition,
                    error_code=code,
                    error_message=message,
                    active_producers=producers,
                )
            )
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _producers(parts: Parts, call: Call, topic: str, partition: int) -> list[ProducerState]:
    check_topic_name(topic)
    if not call.may(parts, Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replica = parts.partitions.find(topic, partition)
    if replica is None:
        replica, _ = parts.partitions.led(parts.view, topic, partition)
    return [_state(producer) for producer in replica.log.producers]


def _state(producer: Producer) -> ProducerState:
    first_offset = producer.transaction_first_offset
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NO_OFFSET if first_offset is None else first_offset,
    )
