"""What a partition's log needs to know of its topic's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.model.settings import table
from moldau.model.settings.resolve import Settings
from moldau.model.settings.table import CleanupPolicy
from moldau.model.settings.types import INT64_MAX

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log; the defaults are Kafka's."""

    segment_bytes: int = table.GIB
    segment_ms: int = 7 * table.DAY_MS
    segment_jitter_ms: int = 0
    index_bytes_max: int = 10 * table.MIB
    index_interval_bytes: int = 4 * table.KIB
    is_deleted: bool = True
    is_compacted: bool = False
    retention_ms: int = 7 * table.DAY_MS
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = table.MINUTE_MS
    delete_retention_ms: int = table.DAY_MS
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = INT64_MAX
    dirty_ratio_min: float = 0.5
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    producer_expiration_ms: int = table.DAY_MS

    @property
    def segment_ms_max(self) -> int:
        """A compacted topic's segments end in time for the compaction that is due."""
        return min(self.segment_ms, self.compaction_lag_ms_max) if self.is_compacted else self.segment_ms

    @classmethod
    def of(cls, topic: Settings, broker: Settings) -> LogConfig:
        """The configuration that follows from a topic's settings and its broker's."""
        policies = topic[table.CLEANUP_POLICY]
        return cls(
            segment_bytes=topic[table.SEGMENT_BYTES],
            segment_ms=topic[table.SEGMENT_MS],
            segment_jitter_ms=topic[table.SEGMENT_JITTER_MS],
            index_bytes_max=topic[table.SEGMENT_INDEX_BYTES],
            index_interval_bytes=topic[table.INDEX_INTERVAL_BYTES],
            is_deleted=CleanupPolicy.DELETE in policies,
            is_compacted=CleanupPolicy.COMPACT in policies,
            retention_ms=topic[table.RETENTION_MS],
            retention_bytes=topic[table.RETENTION_BYTES],
            file_delete_delay_ms=topic[table.FILE_DELETE_DELAY_MS],
            delete_retention_ms=topic[table.DELETE_RETENTION_MS],
            compaction_lag_ms_min=topic[table.MIN_COMPACTION_LAG_MS],
            compaction_lag_ms_max=topic[table.MAX_COMPACTION_LAG_MS],
            dirty_ratio_min=topic[table.MIN_CLEANABLE_DIRTY_RATIO],
            flush_messages=topic[table.FLUSH_MESSAGES],
            flush_ms=topic[table.FLUSH_MS],
            producer_expiration_ms=broker[table.PRODUCER_ID_EXPIRATION_MS],
        )
