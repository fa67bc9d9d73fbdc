"""What a partition's log costs beside the disk itself: appends, fetches, opening, look-ups and compaction.

    python bench/log.py [--quick] [--json] [--directory DIR]

Times are CPU time, the best of several rounds; the contenders take turns, so that a busy machine slows all of
them down alike. Nothing is flushed while the clock runs, since that measures the drive. Files are in a
temporary directory. Where a line has a target, "short" means that it is missed.
"""

import argparse
import json
import os
import platform
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from crc32c import crc32c

from moldau.log.compaction import Compaction
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.wire.records import kernel
from moldau.wire.records.batch import encode_batch
from moldau.wire.records.header import check_crc, read_header
from moldau.wire.records.record import Record
from moldau.world.ports import Buffer, File, Flush
from moldau.world.real.disk import RealDisk

NOW_MS = 1_700_000_000_000
VALUE_BYTES = 100
KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Figure:
    """One line of the result."""

    what: str
    value: float
    unit: str
    target: str = ""
    is_met: bool = True


@dataclass
class Bench:
    """Where the files go, and how much is measured."""

    folder: Path
    is_quick: bool
    rounds: int = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = 3 if self.is_quick else 7

    @contextmanager
    def disk(self) -> Iterator[RealDisk]:
        """An empty data directory, removed afterwards."""
        directory = tempfile.mkdtemp(dir=self.folder)
        disk = RealDisk(directory)
        try:
            yield disk
        finally:
            disk.close()
            shutil.rmtree(directory)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--directory", help="where to put the files, for another drive than that of /tmp")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory, prefix="bench-log-") as folder:
        bench = Bench(Path(folder), asked.quick)
        figures = [
            figure
            for measure in (appends, fetches, opening, look_ups, compaction)
            for figure in measure(bench)
        ]
    if asked.json:
        facts = {"python": platform.python_version(), "kernel": kernel.NAME}
        print(json.dumps({**facts, "figures": [asdict(figure) for figure in figures]}, indent=2))
        return
    for figure in figures:
        verdict = ("ok" if figure.is_met else "short") if figure.target else ""
        print(
            f"{figure.what:<58}{figure.value:>10.2f} {figure.unit:<10}{figure.target:>12} {verdict}".rstrip()
        )


# ---------------------------------------------------------------- appending


def appends(bench: Bench) -> list[Figure]:
    """Whole batches into a log, beside plain writes of the same bytes; both with one CRC."""
    figures = []
    total = (16 if bench.is_quick else 128) * MIB
    for size, share_min in ((64 * KIB, 0.6), (MIB, 0.75)):
        batch = batch_of_size(size)
        count = total // len(batch)
        plain, leader, follower = best_of(
            bench.rounds,
            partial(plain_writes, bench, batch, count),
            partial(leader_appends, bench, batch, count),
            partial(follower_appends, bench, batch, count),
        )
        mib = count * len(batch) / MIB
        label = f"{size // KIB} KiB batches"
        figures.append(Figure(f"{label}: plain writes and CRC", mib / plain, "MiB/s"))
        for role, seconds in (("leader", leader), ("follower", follower)):
            share = plain / seconds
            figures.append(Figure(f"{label}: appended as {role}", mib / seconds, "MiB/s"))
            figures.append(
                Figure(
                    f"{label}: {role}, of plain writes",
                    100 * share,
                    "%",
                    f">= {100 * share_min:.0f}",
                    share >= share_min,
                )
            )
    return figures


def plain_writes(bench: Bench, batch: bytes, count: int) -> float:
    """The least that has to be done: a CRC and a write."""
    with bench.disk() as disk:
        fd = os.open(f"{disk.directory}/plain", os.O_CREAT | os.O_RDWR)
        try:
            start = time.process_time()
            for _ in range(count):
                crc32c(batch)
                os.write(fd, batch)
            return time.process_time() - start
        finally:
            os.close(fd)


def leader_appends(bench: Bench, batch: bytes, count: int) -> float:
    """The same through the log: offsets are given, indexes kept."""
    with bench.disk() as disk:
        log = open_log(disk, "orders-0")
        data = bytearray(batch)
        start = time.process_time()
        for _ in range(count):
            check_crc(data, 0, read_header(data))
            log.append_as_leader(data, leader_epoch=1, now_ms=NOW_MS)
        return time.process_time() - start


def follower_appends(bench: Bench, batch: bytes, count: int) -> float:
    """The same with batches that have their offsets; the log checks their CRC."""
    header = read_header(batch)
    with bench.disk() as disk:
        log = open_log(disk, "orders-0")
        data = bytearray(batch)
        start = time.process_time()
        for number in range(count):
            data[:8] = (number * header.count).to_bytes(8, "big")
            log.append_as_follower(data, now_ms=NOW_MS)
        return time.process_time() - start


# ---------------------------------------------------------------- fetching


class CountingFile:
    """A file that counts its reads."""

    def __init__(self, file: File, disk: "CountingDisk") -> None:
        self.path = file.path
        self._file = file
        self._disk = disk
        self.size = file.size
        self.append = file.append
        self.write_at = file.write_at
        self.truncate = file.truncate
        self.close = file.close

    def read(self, position: int, size: int) -> bytes:
        """Read, and count it."""
        self._disk.reads.append(size)
        return self._file.read(position, size)


class CountingDisk(RealDisk):
    """A disk that knows how often, and how much, was read."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.reads: list[int] = []

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        """A file whose reads count."""
        return CountingFile(super().open(path, create=create), self)


def fetches(bench: Bench) -> list[Figure]:
    """How many reads a fetch takes, and how long; only the first has to look for its place."""
    figures = []
    with bench.disk() as plain:
        disk = CountingDisk(plain.directory)
        log = open_log(disk, "orders-0")
        data = bytearray(batch_of_size(16 * KIB))
        for _ in range(1000):
            log.append_as_leader(data, leader_epoch=1, now_ms=NOW_MS)
        for label, bytes_max, is_tail in (
            ("1 MiB, one after the other", MIB, False),
            ("64 KiB, one after the other", 64 * KIB, False),
            ("the newest batch, as it arrives", MIB, True),
        ):
            fetched, reads, seconds = consume(log, disk, data, bytes_max=bytes_max, is_tail=is_tail)
            figures.append(
                Figure(f"fetch of {label}: reads", reads / fetched, "a fetch", "1", reads <= fetched + 1)
            )
            figures.append(Figure(f"fetch of {label}: time", 1e6 * seconds / fetched, "us"))
        disk.close()
    return figures


def consume(
    log: Log, disk: CountingDisk, data: bytearray, *, bytes_max: int, is_tail: bool
) -> tuple[int, int, float]:
    """Fetch to the log's end; how many fetches, reads and seconds that took."""
    disk.reads.clear()
    fetched, seconds = 0, 0.0
    offset = log.log_end_offset if is_tail else 0
    while fetched < 200 if is_tail else offset < log.log_end_offset:
        if is_tail:
            log.append_as_leader(data, leader_epoch=1, now_ms=NOW_MS)
        start = time.process_time()
        found = log.read(offset, bytes_max=bytes_max, end_limit=log.log_end_offset)
        assert found.records is not None
        found.records.read()
        seconds += time.process_time() - start
        fetched += 1
        offset = found.end_offset
    return fetched, len(disk.reads), seconds


# ---------------------------------------------------------------- opening


def opening(bench: Bench) -> list[Figure]:
    """A broker's start after a clean shutdown."""
    count = 1000
    with bench.disk() as disk:
        batch = batch_of_size(4 * KIB)
        for number in range(count):
            log = open_log(disk, f"orders-{number}")
            for _ in range(3):
                for _ in range(4):
                    log.append_as_leader(bytearray(batch), leader_epoch=1, now_ms=NOW_MS)
                log.roll()
            log.append_as_leader(bytearray(batch), leader_epoch=1, now_ms=NOW_MS)
            # Only the rename of the epochs matters here; the drive is spared.
            for old, new in log.close().flush.renames:
                disk.rename(old, new)

        def open_all() -> float:
            start = time.process_time()
            logs = [open_log(disk, f"orders-{number}", is_clean=True) for number in range(count)]
            seconds = time.process_time() - start
            assert all(log.log_end_offset == logs[0].log_end_offset > 0 for log in logs)
            return seconds

        [seconds] = best_of(bench.rounds, open_all)
    return [
        Figure("opening 1,000 partitions of 4 segments, closed cleanly", seconds, "s", "< 1", seconds < 1)
    ]


# ---------------------------------------------------------------- looking up


def look_ups(bench: Bench) -> list[Figure]:
    """By offset and by time, in logs of few and of many segments."""
    counts = (1, 10, 100, 1000)
    times: dict[str, list[float]] = {}
    for count in counts:
        with bench.disk() as disk:
            log = open_log(disk, "orders-0")
            for number in range(count):
                for part in range(8):
                    at = NOW_MS + 1000 * (8 * number + part)
                    log.append_as_leader(bytearray(small_batch(at)), leader_epoch=1, now_ms=NOW_MS)
                if number < count - 1:
                    log.roll()
            for what, seconds in look_up_times(bench, log).items():
                times.setdefault(what, []).append(1e6 * seconds)
    figures = []
    for what, row in times.items():
        for count, value in zip(counts, row, strict=True):
            is_last = count == counts[-1]
            # Far from the end, a log with more segments than it keeps open has to open one: from 100 to 1,000
            # that is the same, from 1 to 100 it is not.
            limit = 2 * row[counts.index(100) if "anywhere" in what else 0]
            target = f"<= {limit:.1f}" if is_last else ""
            figures.append(
                Figure(
                    f"look-up by {what}, {count} segments", value, "us", target, not is_last or value <= limit
                )
            )
    return figures


def look_up_times(bench: Bench, log: Log) -> dict[str, float]:
    """Seconds for one look-up of each kind."""
    draw = random.Random(1)
    end = log.log_end_offset
    repeats = 500

    def timed(look_up: Callable[[int], object], offsets: Sequence[int]) -> float:
        def once() -> float:
            start = time.process_time()
            for offset in offsets:
                look_up(offset)
            return (time.process_time() - start) / len(offsets)

        [seconds] = best_of(bench.rounds, once)
        return seconds

    def by_offset(offset: int) -> object:
        return log.read(offset, bytes_max=1, end_limit=end)

    def by_time(offset: int) -> object:
        # Every batch has ten records of one second.
        return log.offset_for_timestamp(NOW_MS + 1000 * (offset // 10))

    recent = [max(end - 1 - draw.randrange(80), 0) for _ in range(repeats)]
    anywhere = [draw.randrange(end) for _ in range(repeats)]
    return {
        "offset near the end": timed(by_offset, recent),
        "offset anywhere": timed(by_offset, anywhere),
        "time near the end": timed(by_time, recent),
        "time anywhere": timed(by_time, anywhere),
    }


# ---------------------------------------------------------------- compacting


def compaction(bench: Bench) -> list[Figure]:
    """A round over a log in which each key was written ten times, and over one in which every key is new."""
    size = (16 if bench.is_quick else 64) * MIB
    figures = []
    for label, versions in (("each key ten times", 10), ("every key once", 1)):
        speeds = [compaction_speed(bench, size, versions) for _ in range(2 if bench.is_quick else 3)]
        is_fast = max(speeds) >= 50 or kernel.NAME != "compiled"
        figures.append(
            Figure(f"compaction, {label} ({kernel.NAME} kernel)", max(speeds), "MiB/s", ">= 50", is_fast)
        )
    return figures


def compaction_speed(bench: Bench, size: int, versions: int) -> float:
    """MiB of log that are compacted in a second of CPU."""
    per_batch = 150
    batches = size // (per_batch * (VALUE_BYTES + 24))
    keys = max(batches * per_batch // versions, 1)
    with bench.disk() as disk:
        config = LogConfig(segment_bytes=8 * MIB, is_compacted=True)
        log = open_log(disk, "orders-0", config=config)
        for number in range(batches):
            records = [
                Record(index, NOW_MS, b"key-%08d" % ((number * per_batch + index) % keys), b"v" * VALUE_BYTES)
                for index in range(per_batch)
            ]
            log.append_as_leader(bytearray(encode_batch(records)), leader_epoch=1, now_ms=NOW_MS)
        log.roll()
        work = log.begin_flush()
        disk.flush_blocking(work.flush)
        log.flushed(work)
        log.advance_high_watermark(log.log_end_offset)
        before = log.size_bytes
        seconds = 0.0
        round_ = Compaction(log, now_ms=NOW_MS, keys_max=keys + 1, secret=bytes(16))
        while not round_.is_done:
            start = time.process_time()
            flush = round_.step()
            seconds += time.process_time() - start
            disk.flush_blocking(flush or Flush())
        assert not round_.is_abandoned
        assert log.size_bytes < before / versions * 1.2
        return before / MIB / seconds


# ---------------------------------------------------------------- shared


def open_log(disk: RealDisk, path: str, *, config: LogConfig | None = None, is_clean: bool = False) -> Log:
    """A log that is new, or was closed."""
    return Log.open(
        disk,
        path,
        config or LogConfig(),
        recovery_point=0,
        is_clean=is_clean,
        now_ms=NOW_MS,
        high_watermark=1 << 62,
    )


def batch_of_size(size: int) -> bytes:
    """A batch of about `size` bytes."""
    record_bytes = VALUE_BYTES + 18
    records = [
        Record(index, NOW_MS, b"key-%06d" % index, b"v" * VALUE_BYTES)
        for index in range(size // record_bytes)
    ]
    return encode_batch(records)


def small_batch(timestamp: int) -> Buffer:
    """Ten records of one time."""
    return encode_batch([Record(index, timestamp, b"key", b"v" * VALUE_BYTES) for index in range(10)])


def best_of(rounds: int, *calls: Callable[[], float]) -> list[float]:
    """The least that each call returned."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        best = [min(least, call()) for least, call in zip(best, calls, strict=True)]
    return best


if __name__ == "__main__":
    main()
