"""Produce: appending record batches to partitions."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import Int16, Int32, Int64, Records, String, Struct, Uuid, field


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    """Append record batches to partitions that the broker leads."""

    transactional_id: String | None = field(nullable="3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: Int32
    records: Records | None = field(nullable="0+")


class LeaderIdAndEpoch(Struct, is_value=True):
    """Who leads a partition now, so that the client need not ask."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    """Where the batches were appended, or why not."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, default=[])


class TopicProduceResponse(Struct):
    """The outcome for one topic."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class PartitionProduceResponse(Struct):
    """The outcome for one partition."""

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=[], ignorable=True)
    error_message: String | None = field("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0, default=LeaderIdAndEpoch())


class BatchIndexAndErrorMessage(Struct):
    """A record that caused its batch to be refused."""

    batch_index: Int32
    batch_index_error_message: String | None = field(nullable="8+", default=None)


class NodeEndpoint(Struct):
    """Where a leader named in this response listens."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="10+", default=None)
