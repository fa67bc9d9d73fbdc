"""The hash of a group's topics is the one that Kafka computes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from coordinator.group.consumer.consumers import Consumer, Consumers

from moldau.coordinator.group.consumer.hashing import TopicHashes, topic_hash
from moldau.metadata.image import Image
from moldau.model.ids import Epoch, Offset, TopicName, Uuid, uuid_to_text
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord

PROGRAM = Path(__file__).parents[3] / "kafka" / "HashTopics.java"

RACKS = {1: "a", 2: "b", 3: None, 4: "Zürich-𝄞"}
# The nodes of each partition; node 9 has not registered.
TOPICS: Mapping[str, Sequence[Sequence[int]]] = {
    "plain": [[3], [3]],
    "racked": [[1, 2], [2, 1], [4, 1, 2]],
    "unregistered": [[9], [1, 9]],
    "orders.eu_1-x": [[number % 4 + 1] for number in range(300)],
    "again": [[1, 1]],
}


def image_of(topics: Mapping[str, Sequence[Sequence[int]]]) -> Image:
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=uuid(node_id),
            broker_epoch=1,
            end_points=[],
            features=[],
            rack=rack,
            fenced=False,
        )
        for node_id, rack in RACKS.items()
    ]
    for number, (name, partitions) in enumerate(topics.items()):
        topic_id = uuid(0xFEDCBA9876543210 << 60 | number)
        records.append(TopicRecord(name=name, topic_id=topic_id))
        for index, replicas in enumerate(partitions):
            nodes = list(dict.fromkeys(replicas))
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=nodes,
                    isr=nodes,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=nodes[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[uuid(7)] * len(nodes),
                )
            )
    return Image().apply(records, offset=Offset(1), epoch=Epoch(1))[0]


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def test_topics_and_groups_hash_as_kafka_has_them(run_java: Callable[..., str]) -> None:
    image = image_of(TOPICS)
    lines = []
    for topic in image.topics.values():
        racks = [
            ",".join(rack for node_id in partition.replicas if (rack := RACKS.get(node_id)) is not None)
            for partition in topic.partitions
        ]
        lines.append(" ".join((topic.name, uuid_to_text(topic.id), *racks)))
    theirs = [int(line) for line in run_java(PROGRAM.read_text(), stdin="\n".join(lines)).split()]
    ours = [topic_hash(topic, image) for topic in image.topics.values()]
    assert [*ours, TopicHashes().of_group(map(TopicName, TOPICS), image)] == theirs


def test_a_group_whose_topics_do_not_exist_hashes_to_nothing() -> None:
    assert TopicHashes().of_group([TopicName("none")], image_of({})) == 0


def test_a_topic_is_hashed_anew_when_it_was_forgotten() -> None:
    hashes = TopicHashes()
    before = hashes.of_group([TopicName("t")], image_of({"t": [[1]]}))
    grown = image_of({"t": [[1], [2]]})
    assert hashes.of_group([TopicName("t")], grown) == before
    hashes.forget("t")
    assert hashes.of_group([TopicName("t")], grown) != before


def test_the_hash_is_in_the_log() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    expected = TopicHashes().of_group([TopicName("t")], group.image)
    assert group.consumers.metadata_hash == expected != 0
