"""Records of `__transaction_state`."""

from __future__ import annotations

from moldau.wire.message import CoordinatorKey, CoordinatorValue
from moldau.wire.types import Int8, Int16, Int32, Int64, String, Struct, field


class TransactionLogKey(CoordinatorKey, key=0, versions="0"):
    """The key of a transaction."""

    transactional_id: String


class TransactionLogValue(CoordinatorValue, key=0, versions="0-1", flexible="1+"):
    """The state of a transaction."""

    producer_id: Int64
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None = field(nullable="0+")
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", tag=2, default=0)


class PartitionsSchema(Struct):
    """The partitions of one topic that take part."""

    topic: String
    partition_ids: list[Int32]
