"""A partition whose leader is this broker: what is appended to it, what of it is committed, what can be read.

The high watermark is the smallest end over the in-sync replicas, and moves only while they are enough. A
topic's durability says which end counts: that of what is flushed, or that of what is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, NamedTuple

from moldau.log.config import LogConfig
from moldau.log.log import AppendResult, FetchData, Log
from moldau.log.segment import TimedOffset
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import LeaderEpoch, NodeId
from moldau.model.settings import table
from moldau.model.settings.resolve import Settings
from moldau.model.settings.table import CompressionChoice, Durability, TimestampChoice
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import Buffer
from moldau.wire.records.validation import TimestampType, TopicRules, accept

NO_EPOCH: Final = -1

_CODECS: Final[dict[CompressionChoice, Codec | None]] = {
    CompressionChoice.PRODUCER: None,
    CompressionChoice.UNCOMPRESSED: Codec.NONE,
    CompressionChoice.GZIP: Codec.GZIP,
    CompressionChoice.SNAPPY: Codec.SNAPPY,
    CompressionChoice.LZ4: Codec.LZ4,
    CompressionChoice.ZSTD: Codec.ZSTD,
}
_TIMESTAMPS: Final = {
    TimestampChoice.CREATE_TIME: TimestampType.CREATE_TIME,
    TimestampChoice.LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


@unique
class Isolation(Enum):
    """What a reader may see: all that is committed, or only what no open transaction can take back."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What a topic's settings mean for one of its partitions."""

    log: LogConfig
    rules: TopicRules
    isr_size_min: int
    durability: Durability

    @classmethod
    def of(cls, topic: Settings, broker: Settings, *, isr_size_min: int) -> PartitionConfig:
        """The configuration that follows from a topic's settings and its broker's."""
        log = LogConfig.of(topic, broker)
        return cls(
            log=log,
            rules=TopicRules(
                message_bytes_max=topic[table.MAX_MESSAGE_BYTES],
                timestamp_type=_TIMESTAMPS[topic[table.MESSAGE_TIMESTAMP_TYPE]],
                timestamp_before_ms_max=topic[table.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
                timestamp_after_ms_max=topic[table.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
                codec=_CODECS[topic[table.COMPRESSION_TYPE]],
                gzip_level=topic[table.COMPRESSION_GZIP_LEVEL],
                lz4_level=topic[table.COMPRESSION_LZ4_LEVEL],
                zstd_level=topic[table.COMPRESSION_ZSTD_LEVEL],
                is_compacted=log.is_compacted,
            ),
            isr_size_min=isr_size_min,
            durability=topic[table.DURABILITY],
        )


class Appended(NamedTuple):
    """Where a produced batch stands, and what its producer is told."""

    first_offset: int
    end_offset: int
    log_append_time: int


class Leader:
    """The leader's side of one partition, for one leader epoch."""

    __slots__ = ("_me", "_others_in_sync", "config", "epoch", "epoch_start", "isr_size", "log")

    def __init__(
        self, log: Log, config: PartitionConfig, *, me: NodeId, epoch: LeaderEpoch, isr: Iterable[NodeId]
    ) -> None:
        self.log = log
        self.config = config
        self.epoch = epoch
        self._me = me
        self.isr_changed(isr)
        log.begin_epoch(epoch)
        self.epoch_start = log.log_end_offset

    def isr_changed(self, isr: Iterable[NodeId]) -> None:
        """Take over the in-sync replicas that the cluster knows."""
        others = tuple(node_id for node_id in isr if node_id != self._me)
        self._others_in_sync = others
        self.isr_size = len(others) + 1

    def configure(self, config: PartitionConfig) -> None:
        """Take over changed settings."""
        self.config = config
        self.log.config = config.log

    # ------------------------------------------------------------ appending

    def append(self, batch: Buffer, *, needs_all: bool, now_ms: int) -> Appended:
        """Check a client's batch and append it; `now_ms` is the calendar's. A writable buffer is changed."""
        if needs_all and self.isr_size < self.config.isr_size_min:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.isr_size} replicas are in sync, and {self.config.isr_size_min} are needed.",
            )
        batch, header, log_append_time = accept(batch, self.config.rules, now_ms=now_ms)
        if header.is_transactional:
            # Nobody could end the transaction yet, and readers of committed data would wait for ever.
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "This broker does not coordinate transactions.")
        result: AppendResult = self.log.append_as_leader(
            batch, leader_epoch=self.epoch, now_ms=now_ms, header_of_all=header
        )
        if result.is_duplicate and log_append_time >= 0:
            log_append_time = result.max_timestamp
        # As the class itself makes one, without a call of its own: this is done for every batch.
        return tuple.__new__(Appended, (result.first_offset, result.last_offset + 1, log_append_time))

    @property
    def needs_flush_to_commit(self) -> bool:
        """Whether what is appended is committed only once it is flushed."""
        return self.config.durability is Durability.FLUSHED

    def advance_high_watermark(self) -> bool:
        """Commit what all in-sync replicas hold; tells whether that was more than before."""
        if self._others_in_sync or self.isr_size < self.config.isr_size_min:
            # Nobody has told yet how far the others are.
            return False
        log = self.log
        end = log.flushed_end_offset if self.needs_flush_to_commit else log.log_end_offset
        if end <= log.high_watermark:
            return False
        log.advance_high_watermark(end)
        return True

    # ------------------------------------------------------------ reading

    def check_epoch(self, current_leader_epoch: int) -> None:
        """FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client knows another epoch than this one."""
        if current_leader_epoch in (NO_EPOCH, self.epoch):
            return
        if current_leader_epoch < self.epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_for(self, isolation: Isolation) -> int:
        """The offset before which a reader may read."""
        if isolation is Isolation.READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def read(self, start: int, *, bytes_max: int, isolation: Isolation) -> FetchData:
        """Whole batches from the one that holds `start`, as far as the reader may see."""
        return self.log.read(
            start,
            bytes_max=bytes_max,
            end_limit=self.end_for(isolation),
            with_aborted=isolation is Isolation.READ_COMMITTED,
        )

    def check_high_watermark_is_known(self) -> None:
        """OFFSET_NOT_AVAILABLE while a new leader may not have committed all that its predecessor had."""
        if self.log.high_watermark < self.epoch_start:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)

    def offset_for_timestamp(self, timestamp: int, isolation: Isolation) -> TimedOffset | None:
        """The first record that is not older than `timestamp` and may be seen."""
        found = self.log.offset_for_timestamp(timestamp)
        return found if found is not None and found.offset < self.end_for(isolation) else None
