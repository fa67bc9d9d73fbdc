"""`moldau dump-log` and `kafka-dump-log` read Kafka's files and ours, and say what is wrong in them."""

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.cli import main
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.wire.records.batch import encode_batch
from moldau.wire.records.record import Record
from moldau.world.real.disk import RealDisk

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST = "00000000000000000000"


def dump(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == exit_code, f"{result.output}\n{result.exception!r}"
    return result


def entries(*arguments: object, exit_code: int = 0) -> list[dict[str, Any]]:
    """What `dump-log -o json` says."""
    result = dump("dump-log", "-o", "json", *arguments, exit_code=exit_code)
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a Kafka broker that was shut down, and beside it that of one that was killed."""
    folder = tmp_path_factory.mktemp("kafka")
    for name in ("data-dir", "data-dir-unclean"):
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(folder / name, filter="data")
    return folder


@pytest.fixture(scope="module")
def read_by_kafka() -> dict[str, Any]:
    golden: dict[str, Any] = json.loads((GOLDEN / "data-dir.json").read_text(encoding="utf-8"))
    partitions: dict[str, Any] = golden["data-dir"]["partitions"]
    return partitions


def with_records(partition: Path) -> Iterator[dict[str, Any]]:
    for entry in entries("-d", *sorted(partition.glob("*.log"))):
        if entry["type"] == "batch" and not entry["is_control"]:
            yield from entry["records"]


@pytest.mark.parametrize(
    "name", ["codec-none-0", "codec-gzip-0", "codec-snappy-0", "codec-lz4-0", "codec-zstd-0", "segments-1"]
)
def test_records_are_those_that_kafkas_consumer_read(
    kafkas: Path, read_by_kafka: dict[str, Any], name: str
) -> None:
    shown = list(with_records(kafkas / "data-dir" / name))
    expected = read_by_kafka[name]["records"]
    assert [(r["offset"], r["timestamp"]) for r in shown] == [(r["offset"], r["timestamp"]) for r in expected]
    as_text = [None if r["value"] is None else bytes.fromhex(r["value"]).decode() for r in expected]
    assert [r["value"] for r in shown] == as_text


def test_a_whole_directory_of_kafka_is_sound(kafkas: Path) -> None:
    assert "All is sound." in dump("dump-log", "--verify", kafkas / "data-dir").stdout
    assert "All is sound." in dump("dump-log", "--verify", kafkas / "data-dir-unclean").stdout


def test_what_groups_have_committed_is_decoded(kafkas: Path) -> None:
    records = list(with_records(kafkas / "data-dir" / "__consumer_offsets-0"))
    assert records[0]["key"] == {
        "type": "1",
        "data": {"group": "golden-txn-group", "topic": "segments", "partition": 0},
    }
    assert records[0]["value"]["data"]["offset"] == 7
    members = [r["value"]["data"]["members"] for r in records if r["key"]["type"] == "2" and r["value"]]
    assert any(member["subscription"]["topics"] == ["segments"] for found in members for member in found)
    assert any(record["value"] is None for record in records), "there are tombstones"


def test_the_metadata_log_and_its_snapshots_are_decoded(kafkas: Path) -> None:
    folder = kafkas / "data-dir" / "__cluster_metadata-0"
    records = list(with_records(folder))
    assert all("problem" not in record for record in records)
    topics = [r["value"]["data"]["name"] for r in records if r["value"]["type"] == "TOPIC_RECORD"]
    assert {"segments", "transactions", "codec-gzip"} <= set(topics)
    snapshot = entries("-d", folder / f"{'20':0>20}-{'1':0>10}.checkpoint")
    controls = [r["control"] for entry in snapshot if entry["is_control"] for r in entry["records"]]
    assert controls == ["SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS", "SNAPSHOT_FOOTER"]


def test_transactions_indexes_producers_and_epochs_are_shown(kafkas: Path) -> None:
    found = entries(kafkas / "data-dir" / "transactions-0")
    aborted = [(e["producer_id"], e["first_offset"]) for e in found if e["type"] == "aborted-transaction"]
    assert aborted == [(7, 6), (7, 15), (1002, 24), (1002, 33)]
    assert {e["type"] for e in found} >= {"batch", "offset-index", "time-index", "producer", "text"}
    open_since = [e["transaction_first_offset"] for e in found if e["type"] == "producer"]
    assert 0 in open_since
    texts = [entry["text"] for entry in found if entry["file"].endswith("leader-epoch-checkpoint")]
    assert texts == ["0\n2\n0 0\n2 18\n"]


# ---------------------------------------------------------------- ours


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A partition in several segments, by an idempotent producer, closed properly."""
    disk = RealDisk(str(tmp_path))
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log = Log.open(disk, "orders-0", config, recovery_point=0, is_clean=False, now_ms=0)
    for number in range(20):
        record = Record(0, 1_700_000_000_000 + number, b"key", f"value {number}".encode())
        batch = encode_batch([record], producer_id=5, producer_epoch=0, base_sequence=number)
        log.append_as_leader(bytearray(batch), leader_epoch=3, now_ms=1_700_000_000_000)
    disk.flush_blocking(log.close().flush)
    disk.close()
    return tmp_path / "orders-0"


def test_our_own_partition_is_shown(ours: Path) -> None:
    assert [record["value"] for record in with_records(ours)] == [f"value {n}" for n in range(20)]
    recent = [entry for entry in entries(ours) if entry["file"].endswith(".producers")]
    assert [batch["last_sequence"] for batch in recent[-1]["batches"]] == [15, 16, 17, 18, 19]
    assert "All is sound." in dump("dump-log", "--verify", ours).stdout
    table = dump("dump-log", "-d", ours).stdout
    assert "POSITION  OFFSETS  RECORDS" in table and "key = value 7" in table


def damage_record(segment: Path) -> str:
    _overwrite(segment, 70, b"XX")
    return "CRC is "


def damage_end(segment: Path) -> str:
    segment.write_bytes(segment.read_bytes()[:-5])
    return "is cut off"


def damage_index(segment: Path) -> str:
    _overwrite(segment.with_suffix(".index"), 4, b"\0\0\0\7")
    return "where no batch begins"


def damage_time_index(segment: Path) -> str:
    _overwrite(segment.with_suffix(".timeindex"), 0, b"\0\0\0\0\0\0\0\7")
    return "timestamp 7 is said to be the latest"


def damage_snapshot(segment: Path) -> str:
    _overwrite(max(segment.parent.glob("*.snapshot")), 12, b"XX")
    return "is damaged"


def _overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize(
    "damage", [damage_record, damage_end, damage_index, damage_time_index, damage_snapshot]
)
def test_what_is_damaged_is_named_and_ends_with_1(ours: Path, damage: Callable[[Path], str]) -> None:
    complaint = damage(ours / f"{FIRST}.log")
    said = dump("dump-log", "--verify", ours, exit_code=1)
    assert complaint in said.stdout
    assert "wrong" in said.stderr
    problems = [entry["problem"] for entry in entries(ours, exit_code=1) if entry["problem"]]
    assert any(complaint in problem for problem in problems)
    assert complaint in dump("dump-log", "-d", ours, exit_code=1).stdout


def test_a_file_that_is_none_of_a_log_is_refused_in_a_line(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello")
    assert "is no file of a log" in dump("dump-log", stranger, exit_code=1).stderr
    assert "There is no file" in dump("dump-log", tmp_path / "nothing.log", exit_code=3).stderr
    assert "There are no files of a log" in dump("dump-log", tmp_path, exit_code=3).stderr


# ---------------------------------------------------------------- as Kafka's own tool

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
DECODERS = {
    "__cluster_metadata-0": "--cluster-metadata-decoder",
    "__consumer_offsets-0": "--offsets-decoder",
    "__share_group_state-0": "--share-group-state-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
}


def test_kafkas_tool_prints_the_same(kafkas: Path, ours: Path, run_java: Callable[..., str]) -> None:
    questions = []
    for folder in [*sorted((kafkas / "data-dir").iterdir()), ours]:
        if folder.is_dir():
            files = ",".join(str(file) for file in sorted(folder.iterdir()))
            decoder = DECODERS.get(folder.name, "--print-data-log")
            for options in ("", decoder, "--deep-iteration", "--verify-index-only", "--index-sanity-check"):
                questions.append(f"{options} --files {files}".strip())
    answers = run_java(DUMP, *questions).split("=====\n")[:-1]
    for question, answer in zip(questions, answers, strict=True):
        assert dump("kafka-dump-log", *question.split(" ")).stdout == answer, question
