"""A partition's files are Kafka's: its own tool and its own log read ours, and ours reads a real broker's."""

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from moldau.log import checkpoints
from moldau.log.compaction import Compaction
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.producers import Origin, Producers
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition, uuid_to_text
from moldau.sim.disk import Operation, SimDisk
from moldau.wire.records.batch import decode_batch, encode_batch, encode_end_transaction_marker
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import BatchHeader, iter_headers
from moldau.wire.records.record import Record
from moldau.world.ports import Flush
from moldau.world.real.disk import RealDisk

GOLDEN = Path(__file__).parent.parent / "golden"
START_MS = 1_700_000_000_000
# In the future, because Kafka forgets producers of the past when it opens a log.
OUR_START_MS = 4_000_000_000_000
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, is_compacted=True)
RunJava = Callable[..., str]


def batches_of(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """All batches from the log's start to its end."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, bytes_max=1 << 20, end_limit=log.log_end_offset)
        if fetched.records is None:
            break
        data = fetched.records.read()
        for at, header in iter_headers(data):
            yield decode_batch(data[at : at + header.size_bytes])
        offset = fetched.end_offset


# ---------------------------------------------------------------- what we write, Kafka reads


@dataclass(frozen=True)
class Ours:
    """A partition that was closed, and what is in it."""

    path: Path
    log: Log
    batches: list[tuple[BatchHeader, list[Record]]]

    def files(self, *suffixes: str) -> list[str]:
        """Its files of some kinds, by name."""
        return sorted(str(file) for file in self.path.iterdir() if file.suffix in suffixes)


VARIANTS = ("as written", "compacted")


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ours]:
    """Several segments with every codec, headers, two epochs, idempotent producers and transactions."""
    built = {}
    for variant in VARIANTS:
        folder = tmp_path_factory.mktemp("data")
        disk = RealDisk(str(folder))
        log = Log.open(disk, "orders-0", CONFIG, recovery_point=0, is_clean=False, now_ms=OUR_START_MS)
        _fill(log)
        _flush(disk, log)
        if variant == "compacted":
            _compact(disk, log)
        batches = list(batches_of(log))
        disk.flush_blocking(log.close().flush)
        disk.close()
        assert len(log.segments) >= 3
        built[variant] = Ours(folder / "orders-0", log, batches)
    return built


def _fill(log: Log) -> None:
    sequences = dict.fromkeys(range(10, 14), 0)
    for number in range(40):
        epoch = number // 20
        codec = list(Codec)[number % len(Codec)]
        records = [
            Record(
                index,
                OUR_START_MS + number * 1000 - index * 300,
                (f"key-{index}" if index else f"only-{number}").encode(),
                None if number % 7 == 3 else f"value {number} ".encode() * (3 + number % 5),
                (("number", str(number).encode()), ("null", None), ("řeka", b"\x00\xff")),
            )
            for index in range(1 + number % 4)
        ]
        producer = 10 + number % 4
        log.append_as_leader(
            bytearray(
                encode_batch(
                    records,
                    codec=codec,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    is_transactional=producer > 11,
                )
            ),
            leader_epoch=epoch,
            now_ms=OUR_START_MS,
        )
        sequences[producer] += len(records)
        if producer > 11 and number % 8 > 3 and number < 36:
            marker = encode_end_transaction_marker(
                is_commit=producer == 12,
                coordinator_epoch=5,
                timestamp=OUR_START_MS + number * 1000,
                producer_id=producer,
                producer_epoch=0,
            )
            log.append_as_leader(
                bytearray(marker), leader_epoch=epoch, now_ms=OUR_START_MS, origin=Origin.COORDINATOR
            )


def _flush(disk: RealDisk, log: Log) -> None:
    work = log.begin_flush()
    disk.flush_blocking(work.flush)
    log.flushed(work)
    log.advance_high_watermark(log.log_end_offset)


def _compact(disk: RealDisk, log: Log) -> None:
    size = log.size_bytes
    compaction = Compaction(log, now_ms=OUR_START_MS, keys_max=1000, secret=bytes(16))
    while not compaction.is_done:
        disk.flush_blocking(compaction.step() or Flush())
    assert log.size_bytes < size
    log.remove_deleted(OUR_START_MS + CONFIG.file_delete_delay_ms)


# Starting Java takes longer than what it does here, so it is started once for each program.
DUMP = """
public class Program {
    public static void main(String[] args) throws Exception {
        for (String line : args) {
            org.apache.kafka.tools.DumpLogSegments.main(line.split(" "));
            System.out.println("=====");
        }
    }
}
"""
DATA, SANITY, VERIFY = "--deep-iteration --print-data-log", "--index-sanity-check", "--verify-index-only"
COMPLAINTS = re.compile(r"mismatch|not found|invalid|corrupt|exception|error|could not|fail", re.IGNORECASE)


@pytest.fixture(scope="module")
def dumps(partitions: dict[str, Ours], run_java: RunJava) -> dict[tuple[str, str], str]:
    """What Kafka's dump tool prints of each partition, for each of the ways to ask it."""
    questions = [(variant, options) for variant in VARIANTS for options in (DATA, SANITY, VERIFY)]
    lines = []
    for variant, options in questions:
        suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot") if options == DATA else INDEXES
        lines.append(f"{options} --files {','.join(partitions[variant].files(*suffixes))}")
    answers = run_java(DUMP, *lines).split("=====\n")
    return dict(zip(questions, answers[:-1], strict=True))


INDEXES = (".index", ".timeindex")


@pytest.mark.parametrize("variant", VARIANTS)
def test_kafkas_dump_tool_has_no_complaint_and_sees_what_was_written(
    partitions: dict[str, Ours], dumps: dict[tuple[str, str], str], variant: str
) -> None:
    ours, shown = partitions[variant], dumps[variant, DATA]
    assert not COMPLAINTS.search(shown), COMPLAINTS.search(shown)
    batches = [
        dict(re.findall(r"(\w+): (\S+)", line)) for line in shown.splitlines() if line.startswith("baseOff")
    ]
    assert [
        (
            b["baseOffset"],
            b["lastOffset"],
            b["count"],
            b["producerId"],
            b["partitionLeaderEpoch"],
            b["isvalid"],
        )
        for b in batches
    ] == [
        (*map(str, (h.base_offset, h.last_offset, h.count, h.producer_id, h.leader_epoch)), "true")
        for h, _ in ours.batches
    ]
    records = re.findall(r"^\| offset: (\d+) .*?keySize: (-?\d+) valueSize: (-?\d+)", shown, re.MULTILINE)
    assert records == [
        (str(record.offset), str(_size(record.key)), str(_size(record.value)))
        for _, records in ours.batches
        for record in records
    ]
    indexed = [entry for segment in ours.log.segments for entry in segment.offset_index.items()]
    assert len(indexed) >= 6
    assert re.findall(r"^offset: (\d+) position: (\d+)$", shown, re.MULTILINE) == [
        (str(offset), str(position)) for offset, position in indexed
    ]
    aborted = ours.log.aborted_transactions(0, ours.log.log_end_offset)
    assert aborted
    for transaction in aborted:
        assert re.search(
            rf"producerId: {transaction.producer_id} firstOffset: {transaction.first_offset}"
            rf" lastOffset: {transaction.last_offset} lastStableOffset: {transaction.last_stable_offset}",
            shown,
        )
    for producer in ours.log.producers:
        assert re.search(
            rf"producerId: {producer.producer_id} producerEpoch: {producer.epoch}"
            rf" coordinatorEpoch: {producer.coordinator_epoch} .*lastSequence: {producer.last_sequence}"
            rf" lastOffset: {producer.last_data_offset} ",
            shown,
        ), producer


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("options", [SANITY, VERIFY])
def test_kafkas_dump_tool_finds_the_indexes_sound(
    partitions: dict[str, Ours], dumps: dict[tuple[str, str], str], variant: str, options: str
) -> None:
    shown = dumps[variant, options]
    assert not COMPLAINTS.search(shown), shown
    assert shown.count("Dumping") == len(partitions[variant].files(*INDEXES))


OPEN_LOG = """
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Program {
    public static void main(String[] args) throws Exception {
        List<Object> logs = new ArrayList<>();
        for (int i = 0; i < args.length; i += 2)
            logs.add(read(new File(args[i]), Boolean.parseBoolean(args[i + 1])));
        System.out.println(new ObjectMapper().writeValueAsString(logs));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Map<String, Object> read(File directory, boolean isClean) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(
            directory, new LogConfig(Map.of("segment.bytes", "1048576")), 0L, isClean ? Long.MAX_VALUE : 0L,
            scheduler, new BrokerTopicStats(), Time.SYSTEM, 300000,
            new ProducerStateManagerConfig(86400000, false), 600000,
            new LogDirFailureChannel(1), isClean, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Map<String, Object> seen = new TreeMap<>();
        seen.put("end", log.logEndOffset());
        seen.put("stable", log.lastStableOffset());
        seen.put("segments", log.logSegments().stream().map(LogSegment::baseOffset).toList());
        seen.put("epochs", log.leaderEpochCache().epochEntries().stream()
            .map(entry -> List.of(entry.epoch(), entry.startOffset())).toList());
        seen.put("aborted", log.collectAbortedTransactions(0, log.logEndOffset()).stream()
            .map(txn -> List.of(txn.producerId(), txn.firstOffset(), txn.lastOffset())).toList());
        seen.put("sequences", new TreeMap<>(log.activeProducersWithLastSequence()));
        List<Object> records = new ArrayList<>();
        long offset = 0;
        while (offset < log.logEndOffset()) {
            long next = offset;
            for (var batch : log.read(offset, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                for (var record : batch) {
                    List<Object> headers = new ArrayList<>();
                    for (var header : record.headers())
                        headers.add(Arrays.asList(header.key(), hex(header.value())));
                    records.add(Arrays.asList(record.offset(), record.timestamp(),
                        record.hasKey() ? hex(Program.bytes(record.key())) : null,
                        record.hasValue() ? hex(Program.bytes(record.value())) : null, headers));
                }
                next = batch.nextOffset();
            }
            if (next == offset) break;
            offset = next;
        }
        seen.put("records", records);
        return seen;
    }

    static byte[] bytes(java.nio.ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
"""


@pytest.fixture(scope="module")
def opened(
    partitions: dict[str, Ours], run_java: RunJava, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, bool], dict[str, Any]]:
    """What Kafka's own log finds in copies of each partition, when it opens it as closed and as crashed."""
    questions = [(variant, is_clean) for variant in VARIANTS for is_clean in (True, False)]
    arguments = []
    for variant, is_clean in questions:
        copy = tmp_path_factory.mktemp("copy") / "orders-0"
        copy.mkdir()
        for file in partitions[variant].path.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        arguments += [str(copy), json.dumps(is_clean)]
    answers = json.loads(run_java(OPEN_LOG, *arguments).splitlines()[-1])
    return dict(zip(questions, answers, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("is_clean", [True, False], ids=["after a clean shutdown", "as after a crash"])
def test_kafkas_own_log_opens_our_partition(
    partitions: dict[str, Ours],
    opened: dict[tuple[str, bool], dict[str, Any]],
    variant: str,
    is_clean: bool,
) -> None:
    ours, seen = partitions[variant], opened[variant, is_clean]
    log = ours.log
    assert seen["end"] == log.log_end_offset
    assert seen["stable"] == log.last_stable_offset < log.log_end_offset
    assert seen["segments"] == [segment.base_offset for segment in log.segments]
    assert seen["epochs"] == [list(start) for start in log.epochs]
    aborted = {
        (t.producer_id, t.last_offset): t.first_offset for t in log.aborted_transactions(0, seen["end"])
    }
    found = {(producer_id, last): first for producer_id, first, last in seen["aborted"]}
    if is_clean or variant == "as written":
        assert found == aborted
    else:
        # Recovery cannot know of records that compaction has removed.
        assert found and all(first >= aborted[transaction] for transaction, first in found.items())
    assert seen["sequences"] == {str(p.producer_id): p.last_sequence for p in log.producers}
    assert seen["records"] == [
        [r.offset, r.timestamp, _hex(r.key), _hex(r.value), [[key, _hex(value)] for key, value in r.headers]]
        for _, records in ours.batches
        for r in records
    ]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


# ---------------------------------------------------------------- what a real broker wrote, we read


@dataclass(frozen=True)
class Theirs:
    """A data directory of a real broker, and what its consumer read there."""

    disk: SimDisk
    is_clean: bool
    partitions: dict[str, Any]

    def open(self, name: str) -> Log:
        """Open a partition with what the directory's checkpoints say."""
        topic, _, number = name.rpartition("-")
        at = TopicPartition(TopicName(topic), PartitionIndex(int(number)))
        recovery_point, high_watermark, log_start = (
            checkpoints.read_offsets(self.disk, file).get(at, 0)
            for file in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_STARTS)
        )
        return Log.open(
            self.disk,
            name,
            LogConfig(index_bytes_max=4096),
            recovery_point=recovery_point,
            is_clean=self.is_clean,
            now_ms=START_MS,
            log_start_offset=log_start,
            high_watermark=high_watermark,
        )


def unpacked(name: str) -> Theirs:
    """One of the golden directories, durable on a simulated disk."""
    disk = SimDisk()
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        for member in archive:
            if member.isdir():
                disk.make_directory(member.name)
                continue
            contents = archive.extractfile(member)
            assert contents is not None
            file = disk.open(member.name, create=True)
            file.append((contents.read(),))
            disk.flush_blocking(Flush(files=(file,), directories=("", str(Path(member.name).parent))))
    is_clean = checkpoints.read_clean_shutdown(disk) is not None
    seen = json.loads((GOLDEN / "data-dir.json").read_text(encoding="utf-8"))
    return Theirs(disk, is_clean, seen[name]["partitions"])


DIRECTORIES = ("data-dir", "data-dir-unclean")
PARTITIONS = sorted(
    json.loads((GOLDEN / "data-dir.json").read_text(encoding="utf-8"))["data-dir"]["partitions"]
)
INTERNAL = ("__cluster_metadata-0", "__consumer_offsets-0", "__share_group_state-0", "__transaction_state-0")


@pytest.fixture(scope="module", params=DIRECTORIES)
def theirs(request: pytest.FixtureRequest) -> Theirs:
    return unpacked(request.param)


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_record_of_a_real_broker_is_read(theirs: Theirs, name: str) -> None:
    expected = theirs.partitions[name]
    log = theirs.open(name)
    log.advance_high_watermark(log.log_end_offset)
    assert log.corrupt_ranges == []
    assert log.log_start_offset == expected["start_offset"]
    assert log.high_watermark == expected["high_watermark"]
    assert log.last_stable_offset == expected["last_stable_offset"]
    aborted = log.aborted_transactions(0, log.log_end_offset)
    records = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
            "leader_epoch": log.epochs.epoch_at(record.offset),
            "key": _hex(record.key),
            "value": _hex(record.value),
            "is_committed": record.offset < log.last_stable_offset
            and not any(
                header.is_transactional
                and transaction.producer_id == header.producer_id
                and transaction.first_offset <= record.offset <= transaction.last_offset
                for transaction in aborted
            ),
            "headers": [[key, _hex(value)] for key, value in record.headers],
        }
        for header, records in batches_of(log)
        if not header.is_control
        for record in records
        if record.offset >= log.log_start_offset
    ]
    assert records == expected["records"]


@pytest.mark.parametrize("name", INTERNAL)
def test_every_batch_of_a_real_brokers_own_topics_is_read(theirs: Theirs, name: str) -> None:
    log = theirs.open(name)
    assert log.corrupt_ranges == []
    offsets = [record.offset for _, records in batches_of(log) for record in records]
    assert offsets and offsets == sorted(offsets)
    if theirs.is_clean:
        golden = (GOLDEN / "batches" / f"{name[2:-2].replace('_', '-')}.bin").read_bytes()
        slices = [segment.file.read(0, segment.size) for segment in log.segments]
        assert b"".join(slices) == golden


@pytest.mark.parametrize("name", [*PARTITIONS, *INTERNAL])
def test_opening_what_was_closed_writes_nothing(name: str) -> None:
    theirs = unpacked("data-dir")
    before = _contents(theirs.disk)
    changes: list[Operation] = []
    theirs.disk.on_operation = changes.append
    log = theirs.open(name)
    list(batches_of(log))
    log.offset_for_timestamp(START_MS)
    bases = [segment.base_offset for segment in log.segments]
    # What goes, as it would in Kafka, are snapshots from within a segment, except for the newest.
    gone = [change.path for change in changes if change.kind == "unlink"]
    assert len(gone) == len(changes)
    assert all(path.endswith(".snapshot") and _base(path) not in bases for path in gone)
    assert _base(max(path for path in before if path.startswith(name))) not in map(_base, gone)
    assert _contents(theirs.disk) == {path: data for path, data in before.items() if path not in gone}


def _base(path: str) -> int:
    return int(Path(path).stem) if Path(path).stem.isdigit() else -1


def _contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.open(path).read(0, 1 << 30) for path in disk.paths()}


@pytest.mark.parametrize("name", PARTITIONS)
def test_recovery_agrees_with_the_snapshots_of_a_real_broker(name: str) -> None:
    closed, replayed = unpacked("data-dir"), unpacked("data-dir")
    known = closed.open(name)
    for file in replayed.disk.list(name):
        if file.endswith((".snapshot", ".index", ".timeindex", ".txnindex")):
            replayed.disk.remove(f"{name}/{file}")
    recovered = replace(replayed, is_clean=False).open(name)
    # The broker has forgotten producers whose (invented) timestamps are long past; a replay meets them again.
    for producer in known.producers:
        again = recovered.producers.get(producer.producer_id)
        assert again is not None and replace(again, batches=again.batches[-1:]) == producer
    end = known.log_end_offset
    assert recovered.aborted_transactions(0, end) == known.aborted_transactions(0, end)
    for record in closed.partitions[name]["records"]:
        found = known.offset_for_timestamp(record["timestamp"])
        assert found == recovered.offset_for_timestamp(record["timestamp"])
        assert found is not None and found.offset <= record["offset"]


def test_a_snapshot_of_a_real_broker_is_written_again_byte_for_byte() -> None:
    theirs = unpacked("data-dir")
    snapshots = [path for path in theirs.disk.paths() if path.endswith(".snapshot")]
    assert len(snapshots) > 20
    for path in snapshots:
        data = theirs.disk.open(path).read(0, 1 << 20)
        assert Producers.from_snapshot(data, None).to_snapshot(1 << 62)[0] == data, path


def test_the_small_files_of_a_real_broker_are_read(theirs: Theirs) -> None:
    identity = checkpoints.read_identity(theirs.disk)
    assert identity is not None and identity.directory_id is not None
    assert (identity.cluster_id, identity.node_id) == ("TW9sZGF1R29sZGVuQnl0ZQ", 1)
    for name, expected in theirs.partitions.items():
        topic_id = checkpoints.read_topic_id(theirs.disk, name)
        assert topic_id is not None and uuid_to_text(topic_id) == expected["topic_id"]
    assert theirs.is_clean == (checkpoints.read_clean_shutdown(theirs.disk) is not None)
    starts = checkpoints.read_offsets(theirs.disk, checkpoints.LOG_STARTS)
    assert {f"{at.topic}-{at.partition}": offset for at, offset in starts.items()} == {"deleted-records-0": 4}
    cleaned = checkpoints.read_offsets(theirs.disk, checkpoints.CLEANED_ENDS)
    assert TopicPartition(TopicName("compacted"), PartitionIndex(0)) in cleaned


def test_a_clean_directory_has_all_of_every_log_below_its_recovery_point() -> None:
    theirs = unpacked("data-dir")
    for at, offset in checkpoints.read_offsets(theirs.disk, checkpoints.RECOVERY_POINTS).items():
        assert theirs.open(f"{at.topic}-{at.partition}").log_end_offset == offset


def test_a_checkpoint_of_a_real_broker_is_written_again_line_for_line() -> None:
    theirs = unpacked("data-dir")
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_STARTS):
        text = theirs.disk.open(name).read(0, 1 << 20)
        disk = SimDisk()
        disk.flush_blocking(
            checkpoints.write_offsets(disk, name, checkpoints.read_offsets(theirs.disk, name))
        )
        written = disk.open(name).read(0, 1 << 20)
        assert sorted(io.BytesIO(written)) == sorted(io.BytesIO(text))
