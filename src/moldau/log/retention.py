"""Which of a log's oldest segments its topic's settings no longer keep."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.log.config import LogConfig
from moldau.log.segment import Segment


def deletable(
    segments: Sequence[Segment],
    *,
    config: LogConfig,
    now_ms: int,
    log_start: int,
    high_watermark: int,
    log_end: int,
) -> int:
    """How many segments, from the oldest on, may go: never one that holds something uncommitted."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end]
    surplus = surplus_bytes(segments, config)
    count = 0
    for segment, end in zip(segments, ends, strict=True):
        is_last_and_empty = count == len(segments) - 1 and segment.size == 0
        is_unneeded = (
            # The last segment stays even if the log starts at its end: it says where the log goes on.
            (end <= log_start and count < len(segments) - 1)
            or is_expired(segment, config, now_ms)
            or (config.is_deleted and 0 < segment.size <= surplus)
        )
        if is_last_and_empty or end > high_watermark or not is_unneeded:
            break
        surplus -= segment.size
        count += 1
    return count


def is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """Whether even the newest record of a segment is too old; without timestamps it never is."""
    if not config.is_deleted or config.retention_ms < 0 or segment.max_timestamp < 0:
        return False
    return now_ms - segment.max_timestamp > config.retention_ms


def surplus_bytes(segments: Sequence[Segment], config: LogConfig) -> int:
    """By how much the log is larger than it should be."""
    if not config.is_deleted or config.retention_bytes < 0:
        return 0
    return max(sum(segment.size for segment in segments) - config.retention_bytes, 0)
