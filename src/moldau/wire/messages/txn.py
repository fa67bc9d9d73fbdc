"""Transactions: producer ids, partitions and offsets taking part, the end, markers, and looking at them."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, Int64, String, Struct, field


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+", latest_unstable=True):
    """Ask for a producer id, and for a transactional one end what its predecessor left open."""

    transactional_id: String | None = field(nullable="0+")
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    """The producer id and epoch to use from now on."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    """Add partitions to a transaction; brokers also use it to verify them, many at a time."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=[])
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=[])


class AddPartitionsToTxnTransaction(Struct):
    """One transaction in the batched form, from version 4 on."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: String
    partitions: list[Int32]


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    """Which partitions take part."""

    throttle_time_ms: Int32
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=[])


class AddPartitionsToTxnResult(Struct):
    """The outcome for one transaction."""

    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for one topic."""

    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    partition_error_code: Int16


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    """Let the offsets of a group take part in a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    """Whether they take part."""

    throttle_time_ms: Int32
    error_code: Int16


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    """Commit offsets of a group as part of a transaction."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None = field(nullable="0+")


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    """Which offsets will be committed with the transaction."""

    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    """Commit or abort a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    """Whether it ended, and from version 5 on the epoch for the next one."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    """Write the outcome of transactions into the partitions that took part."""

    markers: list[WritableTxnMarker]


class WritableTxnMarker(Struct):
    """The outcome of one transaction."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic that took part."""

    name: String
    partition_indexes: list[Int32]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    """Which markers were written."""

    markers: list[WritableTxnMarkerResult]


class WritableTxnMarkerResult(Struct):
    """The outcome for one transaction."""

    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WritableTxnMarkerTopicResult(Struct):
    """The outcome for one topic."""

    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    """Ask which producers write to partitions."""

    topics: list[TopicRequest]


class TopicRequest(Struct):
    """The partitions of one topic to look at."""

    name: String
    partition_indexes: list[Int32]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    """The producers of each partition."""

    throttle_time_ms: Int32
    topics: list[TopicResponse]


class TopicResponse(Struct):
    """The producers in one topic."""

    name: String
    partitions: list[PartitionResponse]


class PartitionResponse(Struct):
    """The producers in one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    active_producers: list[ProducerState]


class ProducerState(Struct):
    """What the partition's leader knows of one producer."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """Ask for the state of transactions."""

    transactional_ids: list[String]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """The transactions that were asked for."""

    throttle_time_ms: Int32
    transaction_states: list[DescribeTransactionsTransactionState]


class DescribeTransactionsTransactionState(Struct):
    """A transaction and the partitions that take part."""

    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


class TopicData(Struct):
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    """Ask for the transactions of this coordinator, by state, producer, age or name."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", nullable="2+", default=None)


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    """The transactions that were found."""

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[ListTransactionsTransactionState]


class ListTransactionsTransactionState(Struct):
    """A transaction by name, with its producer and state."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String
