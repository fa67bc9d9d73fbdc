"""Producer ids: brokers get them in blocks, and no id is given out twice."""

from __future__ import annotations

from typing import Final

from moldau.metadata.controller.decisions import ControllerDecision, check_broker_epoch
from moldau.metadata.view import ClusterView
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.wire.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(
    view: ClusterView, request: AllocateProducerIdsRequest
) -> ControllerDecision[AllocateProducerIdsResponse]:
    """Give a broker the next block of ids."""
    check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
    first = view.image.next_producer_id
    if first > _PRODUCER_ID_MAX - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"All producer ids up to {first} were given out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    reply = AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=0, producer_id_start=first, producer_id_len=BLOCK_SIZE
    )
    return Decision(reply, (record,))
