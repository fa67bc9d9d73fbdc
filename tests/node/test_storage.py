"""A directory is formatted once, for one node of one cluster, and a cut of power half-way costs nothing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from moldau.log.checkpoints import DirectoryIdentity
from moldau.metadata.bootstrap import bootstrap_records
from moldau.metadata.features import GROUP_VERSION
from moldau.model.errors import MalformedMessage
from moldau.model.ids import ClusterId, DirectoryId, Epoch, NodeId, Offset, Uuid, uuid_to_text
from moldau.node.config import NodeConfig
from moldau.node.quorum_files import checkpoint_name, list_snapshots, read_snapshot
from moldau.node.quorum_log import PATH
from moldau.node.storage import (
    BOOTSTRAP,
    UnusableDirectory,
    format_directory,
    open_directory,
    parse_initial_controllers,
    read_bootstrap,
    standalone_voters,
)
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from moldau.sim.cluster import sleep_ms
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.wire.messages.metadata_records import FeatureLevelRecord
from moldau.world.ports import Disk

CLUSTER = ClusterId("2R5ePzDyTw2zrZk5bWWzbg")
MINE, OTHERS = DirectoryId(Uuid(b"m" * 16)), DirectoryId(Uuid(b"o" * 16))
FIRST = OffsetAndEpoch(Offset(0), Epoch(0))
GOLDEN = Path(__file__).parents[1] / "golden" / "data-dir.tar.gz"

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "data",
}
CONFIG = NodeConfig.of(COMBINED)
BROKER = NodeConfig.of(
    COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092", "node.id": "7"}
)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Seeded(1), sleep_ms=sleep_ms, flush_ms=(0, 0))


def format_(
    disk: Disk,
    config: NodeConfig = CONFIG,
    *,
    cluster_id: ClusterId = CLUSTER,
    directory_id: DirectoryId = MINE,
    voters: VoterSet | None = None,
    levels: dict[str, int] | None = None,
    is_ignoring_formatted: bool = False,
) -> bool:
    return format_directory(
        disk,
        config,
        cluster_id=cluster_id,
        directory_id=directory_id,
        voters=standalone_voters(config, directory_id) if voters is None else voters,
        levels=levels or {},
        timestamp=5,
        is_ignoring_formatted=is_ignoring_formatted,
    )


def voters_on(disk: Disk) -> VoterSet:
    file = disk.open(f"{PATH}/{checkpoint_name(FIRST)}")
    return read_snapshot(file.read(0, file.size())).voters


def write(disk: Disk, path: str, data: bytes) -> None:
    disk.open(path, create=True).append((data,))


# ---------------------------------------------------------------- formatting


def test_a_formatted_directory_survives_a_power_cut(disk: SimDisk) -> None:
    assert format_(disk)
    after = disk.crash(Survives.NOTHING)
    assert open_directory(after, CONFIG) == DirectoryIdentity(CLUSTER, NodeId(1), MINE)
    assert read_bootstrap(after) == bootstrap_records(static=CONFIG.static)
    assert list_snapshots(after, PATH) == [FIRST]
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    assert voters_on(after) == VoterSet.of(Voter(ReplicaKey(NodeId(1), MINE), (endpoint,)))


def test_features_begin_at_the_levels_that_are_asked_for(disk: SimDisk) -> None:
    format_(disk, levels={GROUP_VERSION: 0})
    names = [record.name for record in read_bootstrap(disk) if isinstance(record, FeatureLevelRecord)]
    assert "metadata.version" in names
    assert GROUP_VERSION not in names


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ({"grupp.version": 1}, "There is no feature 'grupp.version'"),
        ({GROUP_VERSION: 9}, "group.version cannot start at level 9"),
        ({"kraft.version": 0}, "kraft.version must be 1"),
    ],
)
def test_a_level_that_cannot_be_leaves_the_directory_alone(
    disk: SimDisk, levels: dict[str, int], why: str
) -> None:
    with pytest.raises(UnusableDirectory, match=why):
        format_(disk, levels=levels)
    assert disk.list("") == []


def test_a_node_that_begins_no_quorum_has_none(disk: SimDisk) -> None:
    format_(disk, BROKER, voters=VoterSet())
    assert not disk.exists(PATH)
    assert open_directory(disk, BROKER).node_id == 7


def test_only_a_controller_can_be_a_quorum() -> None:
    with pytest.raises(UnusableDirectory, match="Node 7 is no controller"):
        standalone_voters(BROKER, MINE)


def test_formatting_again_is_refused_unless_that_is_fine(disk: SimDisk) -> None:
    format_(disk)
    with pytest.raises(UnusableDirectory, match="data is already formatted; --ignore-formatted"):
        format_(disk, directory_id=OTHERS)
    assert not format_(disk, directory_id=OTHERS, is_ignoring_formatted=True)
    assert open_directory(disk, CONFIG).directory_id == MINE


def test_the_directory_of_another_cluster_or_node_is_never_fine(disk: SimDisk) -> None:
    format_(disk)
    with pytest.raises(UnusableDirectory, match="belongs to the cluster 2R5ePzDyTw2zrZk5bWWzbg, not to"):
        format_(disk, cluster_id=ClusterId("other"), is_ignoring_formatted=True)
    with pytest.raises(UnusableDirectory, match=r"belongs to node 1, and node\.id is 7"):
        format_(disk, BROKER, voters=VoterSet(), is_ignoring_formatted=True)


@pytest.mark.parametrize("cluster_id", ["", "two words", "line\n"])
def test_a_cluster_must_have_an_id(disk: SimDisk, cluster_id: str) -> None:
    with pytest.raises(UnusableDirectory, match="random-uuid"):
        format_(disk, cluster_id=ClusterId(cluster_id))


def test_what_was_formatted_half_is_formatted_again_with_the_new_id(disk: SimDisk) -> None:
    format_(disk, directory_id=OTHERS)
    disk.remove("meta.properties")
    assert format_(disk)
    assert voters_on(disk).keys == (ReplicaKey(NodeId(1), MINE),)
    assert open_directory(disk, CONFIG).directory_id == MINE


def test_a_metadata_log_is_not_overwritten_because_another_file_is_gone(disk: SimDisk) -> None:
    format_(disk)
    write(disk, f"{PATH}/00000000000000000000.log", b"records")
    disk.remove("meta.properties")
    with pytest.raises(UnusableDirectory, match=r"has a metadata log and no meta\.properties"):
        format_(disk)


# ---------------------------------------------------------------- several controllers


def test_initial_controllers_are_the_voters() -> None:
    text = f"1@localhost:9093:{uuid_to_text(MINE)}, 2@[::1]:9093:{uuid_to_text(OTHERS)}"
    assert parse_initial_controllers(text, CONFIG) == VoterSet.of(
        Voter(ReplicaKey(NodeId(1), MINE), (Endpoint("CONTROLLER", "localhost", 9093),)),
        Voter(ReplicaKey(NodeId(2), OTHERS), (Endpoint("CONTROLLER", "::1", 9093),)),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1@localhost:9093", "must be ID@HOST:PORT:DIRECTORY-ID"),
        (f"2@b:9093:{uuid_to_text(MINE)}", "do not name node 1"),
        (f"1@a:1:{uuid_to_text(MINE)},1@b:1:{uuid_to_text(OTHERS)}", "name node 1 twice"),
        (f"1@a:1:{uuid_to_text(MINE)},2@b:1:{uuid_to_text(MINE)}", "is not one of its own"),
        ("1@a:1:AAAAAAAAAAAAAAAAAAAAAA", "is not one of its own"),
    ],
)
def test_initial_controllers_that_cannot_be_are_refused(text: str, why: str) -> None:
    with pytest.raises(UnusableDirectory, match=why):
        parse_initial_controllers(text, CONFIG)


# ---------------------------------------------------------------- starting


def test_a_directory_that_is_not_formatted_is_answered_with_the_command(disk: SimDisk) -> None:
    with pytest.raises(UnusableDirectory, match=r"not formatted. Run: moldau storage format --config"):
        open_directory(disk, CONFIG)


def test_a_directory_has_one_process(disk: SimDisk) -> None:
    format_(disk)
    open_directory(disk, CONFIG)
    with pytest.raises(UnusableDirectory, match="in use by another process"):
        open_directory(disk, CONFIG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"version=1\ncluster.id=c\nnode.id=2\ndirectory.id=" + b"b" * 22, "belongs to node 2"),
        (b"version=1\ncluster.id=c\nnode.id=1\n", "no directory.id"),
        (b"version=1\ncluster.id=c\n", "'node.id' is missing"),
        (b"version=0\nbroker.id=1\n", "version 0 is not known"),
    ],
)
def test_a_directory_of_somebody_else_is_not_opened(disk: SimDisk, text: bytes, why: str) -> None:
    write(disk, "meta.properties", text)
    with pytest.raises(UnusableDirectory, match=why):
        open_directory(disk, CONFIG)


@pytest.mark.parametrize("size", [None, 0, 20, -1], ids=["missing", "empty", "cut early", "cut late"])
def test_first_records_that_are_not_whole_are_not_believed(disk: SimDisk, size: int | None) -> None:
    format_(disk)
    file = disk.open(BOOTSTRAP)
    data = file.read(0, file.size())
    disk.remove(BOOTSTRAP)
    if size is not None:
        write(disk, BOOTSTRAP, data[:size])
    with pytest.raises(MalformedMessage, match=BOOTSTRAP):
        read_bootstrap(disk)


def test_what_kafka_formatted_can_be_opened(disk: SimDisk) -> None:
    with tarfile.open(fileobj=io.BytesIO(GOLDEN.read_bytes())) as tar:
        for name in ("meta.properties", BOOTSTRAP):
            file = tar.extractfile(name)
            assert file is not None
            write(disk, name, file.read())
    assert open_directory(disk, CONFIG).cluster_id == "TW9sZGF1R29sZGVuQnl0ZQ"
    levels = [record for record in bootstrap_records(static={}) if isinstance(record, FeatureLevelRecord)]
    assert read_bootstrap(disk) == levels
