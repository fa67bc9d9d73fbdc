"""The files of the quorum: Kafka's names, Kafka's contents."""

import json
from collections.abc import Callable

import pytest
from raft.replicas import voter

from moldau.model.errors import MalformedMessage
from moldau.model.ids import Epoch, NodeId, Offset
from moldau.node.quorum_files import (
    checkpoint_name,
    encode_snapshot,
    format_quorum,
    list_snapshots,
    make_quorum_directory,
    read_election,
    read_snapshot,
    write_election,
    write_snapshot,
)
from moldau.raft.events import ElectionState
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import VoterSet
from moldau.sim.cluster import sleep_ms
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.wire.records.record import Record

PATH = "__cluster_metadata-0"
VOTERS = VoterSet.of(voter(1), voter(2))


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk(Seeded(1), sleep_ms=sleep_ms, flush_ms=(0, 0))
    make_quorum_directory(made, PATH)
    return made


def read_text(disk: SimDisk, name: str) -> str:
    file = disk.open(f"{PATH}/{name}")
    return file.read(0, file.size()).decode()


@pytest.mark.parametrize(
    "state",
    [
        ElectionState(Epoch(2**31 - 1), NodeId(3), voter(2).key),
        ElectionState(Epoch(4), None, voter(2).key),
        ElectionState(Epoch(4)),
    ],
)
def test_an_election_survives_a_power_cut_once_it_is_flushed(disk: SimDisk, state: ElectionState) -> None:
    disk.flush_blocking(write_election(disk, PATH, state))
    assert read_election(disk.crash(Survives.NOTHING), PATH) == state


def test_a_new_node_has_no_election_behind_it(disk: SimDisk) -> None:
    assert read_election(disk, PATH) == ElectionState()


def test_the_quorum_state_has_the_fields_of_kafkas_file(disk: SimDisk) -> None:
    disk.flush_blocking(write_election(disk, PATH, ElectionState(Epoch(4), NodeId(3), voter(2).key)))
    assert json.loads(read_text(disk, "quorum-state")) == {
        "leaderId": 3,
        "leaderEpoch": 4,
        "votedId": 2,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAyg",
        "data_version": 1,
    }


def test_a_damaged_quorum_state_is_not_taken_for_a_new_one(disk: SimDisk) -> None:
    disk.open(f"{PATH}/quorum-state", create=True).append((b'{"leaderId":',))
    with pytest.raises(MalformedMessage):
        read_election(disk, PATH)


def test_a_snapshot_is_named_as_kafka_names_it() -> None:
    name = checkpoint_name(OffsetAndEpoch(Offset(42), Epoch(7)))
    assert name == "00000000000000000042-0000000007.checkpoint"


def test_a_snapshot_survives_a_power_cut_once_it_is_flushed_and_not_before(disk: SimDisk) -> None:
    snapshot_id = OffsetAndEpoch(Offset(42), Epoch(7))
    records = [Record(0, 5, b"k", b"v"), Record(0, 6, None, b"w")]
    batches = encode_snapshot(VOTERS, records, epoch=Epoch(7), timestamp=9)
    work = write_snapshot(disk, PATH, snapshot_id, batches)
    assert list_snapshots(disk, PATH) == []
    disk.flush_blocking(work)
    after = disk.crash(Survives.NOTHING)
    assert list_snapshots(after, PATH) == [snapshot_id]
    file = after.open(f"{PATH}/{checkpoint_name(snapshot_id)}")
    snapshot = read_snapshot(file.read(0, file.size()))
    assert snapshot.voters == VOTERS
    assert [(record.key, record.value) for record in snapshot.records] == [(b"k", b"v"), (None, b"w")]


@pytest.mark.parametrize("cut", [1, 100], ids=["in the footer", "in the middle"])
def test_a_snapshot_that_is_cut_off_is_not_read(cut: int) -> None:
    data = b"".join(encode_snapshot(VOTERS, [], epoch=Epoch(7), timestamp=9))
    with pytest.raises(MalformedMessage):
        read_snapshot(data[:-cut])


def test_formatting_twice_changes_nothing(disk: SimDisk) -> None:
    start = OffsetAndEpoch(Offset(5), Epoch(2))
    format_quorum(disk, PATH, VOTERS, start=start, timestamp=0)
    format_quorum(disk, PATH, VOTERS, timestamp=0)
    assert list_snapshots(disk, PATH) == [start]


READ_STATE = """
import java.nio.file.*;
import com.fasterxml.jackson.databind.*;
import org.apache.kafka.raft.generated.*;

public class Main {
    public static void main(String[] args) throws Exception {
        JsonNode node = new ObjectMapper().readTree(args[0]);
        short version = node.get("data_version").shortValue();
        QuorumStateData data = QuorumStateDataJsonConverter.read(node, version);
        System.out.print(data.leaderId() + " " + data.leaderEpoch() + " " + data.votedId() + " "
            + data.votedDirectoryId());
    }
}
"""


def test_kafka_reads_the_quorum_state(disk: SimDisk, run_java: Callable[..., str]) -> None:
    disk.flush_blocking(write_election(disk, PATH, ElectionState(Epoch(4), NodeId(3), voter(2).key)))
    printed = run_java(READ_STATE, read_text(disk, "quorum-state"))
    assert printed.split() == ["3", "4", "2", "AAAAAAAAAAAAAAAAAAAAyg"]
