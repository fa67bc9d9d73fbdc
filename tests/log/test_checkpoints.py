"""The text files of a data directory, in Kafka's words."""

import pytest

from moldau.log import checkpoints
from moldau.log.checkpoints import DirectoryIdentity
from moldau.model.errors import MalformedMessage
from moldau.model.ids import (
    ClusterId,
    DirectoryId,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
    Uuid,
)
from moldau.sim.disk import SimDisk, Survives

UUID = Uuid(bytes(range(16)))
UUID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def write(disk: SimDisk, path: str, text: str) -> None:
    disk.open(path, create=True).append((text.encode(),))


def text_of(disk: SimDisk, path: str) -> str:
    file = disk.open(path)
    return file.read(0, file.size()).decode()


NAMES = [
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANED_ENDS,
]


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_kept_by_topic_and_partition(name: str) -> None:
    disk = SimDisk()
    offsets = {
        TopicPartition(TopicName("b"), PartitionIndex(0)): 7,
        TopicPartition(TopicName("a"), PartitionIndex(10)): 2**40,
    }
    assert checkpoints.read_offsets(disk, name) == {}
    disk.flush_blocking(checkpoints.write_offsets(disk, name, offsets))
    assert text_of(disk, name) == "0\n2\na 10 1099511627776\nb 0 7\n"
    assert checkpoints.read_offsets(disk.crash(Survives.NOTHING), name) == offsets


def test_a_checkpoint_that_was_not_flushed_leaves_the_one_before() -> None:
    disk = SimDisk()
    name, key = checkpoints.HIGH_WATERMARKS, TopicPartition(TopicName("a"), PartitionIndex(0))
    disk.flush_blocking(checkpoints.write_offsets(disk, name, {key: 1}))
    checkpoints.write_offsets(disk, name, {key: 2})
    for survives in Survives:
        assert checkpoints.read_offsets(disk.crash(survives), name) == {key: 1}


@pytest.mark.parametrize("text", ["", "0", "0\n1\n", "1\n0\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "x\n0\n"])
def test_a_checkpoint_that_makes_no_sense_is_refused(text: str) -> None:
    disk = SimDisk()
    write(disk, checkpoints.RECOVERY_POINTS, text)
    with pytest.raises(MalformedMessage):
        checkpoints.read_offsets(disk, checkpoints.RECOVERY_POINTS)


def test_a_clean_shutdown_is_remembered_until_it_is_taken_back() -> None:
    disk = SimDisk()
    assert checkpoints.read_clean_shutdown(disk) is None
    disk.flush_blocking(checkpoints.write_clean_shutdown(disk, 42))
    assert text_of(disk, ".kafka_cleanshutdown") == '{"version":0,"brokerEpoch":42}'
    disk = disk.crash(Survives.NOTHING)
    assert checkpoints.read_clean_shutdown(disk) == 42
    disk.flush_blocking(checkpoints.remove_clean_shutdown(disk))
    assert checkpoints.read_clean_shutdown(disk.crash(Survives.NOTHING)) is None


def test_an_empty_clean_shutdown_file_knows_no_broker_epoch() -> None:
    disk = SimDisk()
    write(disk, checkpoints.CLEAN_SHUTDOWN, "")
    assert checkpoints.read_clean_shutdown(disk) == -1


def test_a_directory_knows_whose_it_is() -> None:
    disk = SimDisk()
    identity = DirectoryIdentity(ClusterId("cluster"), NodeId(3), DirectoryId(UUID))
    assert checkpoints.read_identity(disk) is None
    disk.flush_blocking(checkpoints.write_identity(disk, identity))
    assert f"directory.id={UUID_TEXT}\n" in text_of(disk, "meta.properties")
    assert checkpoints.read_identity(disk) == identity


def test_kafkas_own_meta_properties_are_understood() -> None:
    disk = SimDisk()
    write(disk, "meta.properties", "#\n#Tue Nov 17 10:00:00 UTC 2026\nversion=1\nnode.id=3\ncluster.id=c\n")
    assert checkpoints.read_identity(disk) == DirectoryIdentity(ClusterId("c"), NodeId(3), None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=0\ncluster.id=c\nnode.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=c\nnode.id=x\n",
    ],
)
def test_a_directory_in_doubt_is_refused(text: str) -> None:
    disk = SimDisk()
    write(disk, "meta.properties", text)
    with pytest.raises(MalformedMessage):
        checkpoints.read_identity(disk)


def test_a_partition_knows_its_topic() -> None:
    disk = SimDisk()
    disk.make_directory("a-0")
    assert checkpoints.read_topic_id(disk, "a-0") is None
    disk.flush_blocking(checkpoints.write_topic_id(disk, "a-0", TopicId(UUID)))
    assert text_of(disk, "a-0/partition.metadata") == f"version: 0\ntopic_id: {UUID_TEXT}"
    assert checkpoints.read_topic_id(disk, "a-0") == UUID


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: x", "version: 0", "version: 0\ntopic_id: x"])
def test_a_partition_in_doubt_is_refused(text: str) -> None:
    disk = SimDisk()
    disk.make_directory("a-0")
    write(disk, "a-0/partition.metadata", text)
    with pytest.raises(MalformedMessage):
        checkpoints.read_topic_id(disk, "a-0")
