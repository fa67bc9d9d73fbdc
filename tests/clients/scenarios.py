"""What every client must be able to do with the broker, each written once for all clients."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from clients.drivers.driver import (
    CODECS,
    UNKNOWN,
    Codec,
    Driver,
    DriverError,
    GroupProtocol,
    Headers,
    NewRecord,
    OffsetRange,
    Placed,
    ReadRecord,
    Start,
    TopicDescription,
)

from moldau.model.errors import ErrorCode
from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope

READ_TIMEOUT_MS = 30_000
CHANGE_TIMEOUT_S = 20
# Generous for tools that take seconds to start, and far below the time that a consumer is ready to wait.
LATE_S = 20
PAST = 1_700_000_000_000

TEXTS = ["Vltava", "Příliš žluťoučký kůň", "数据", "مرحبا", "🌊 → 🗻", "a b\tc"]
RECORDS = [
    NewRecord(
        value=f"{number} {TEXTS[number % len(TEXTS)]} {'and so on ' * 30}".encode(),
        key=f"{TEXTS[number % len(TEXTS)]}-{number}".encode(),
        partition=0,
    )
    for number in range(20)
]


@dataclass(frozen=True, slots=True)
class Scene:
    """The client that is judged, and the reference client that prepares and checks."""

    client: Driver
    reference: Driver

    def new_name(self) -> str:
        """A name that no topic has yet."""
        return f"scene-{uuid.uuid4().hex[:12]}"

    def new_topic(self, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """A topic that is there for everybody, made by the reference client."""
        topic = self.new_name()
        self.reference.create_topic(topic, partitions=partitions, configs=configs)
        self.until_described(topic, partitions)
        return topic

    def until_described(self, topic: str, partitions: int) -> None:
        """Wait until a topic with so many partitions, all led, has come from the controller to the broker."""

        def look() -> bool:
            try:
                found = self.reference.describe_topic(topic)
            except DriverError as unknown:
                if unknown.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return False
            return found.partitions == partitions and UNKNOWN not in found.leaders

        eventually(look, True)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: its name, what it shows, and how."""

    name: str
    shows: str
    play: Callable[[Scene], None]


# ---------------------------------------------------------------- topics


def create_topic(scene: Scene) -> None:
    topic = scene.new_name()
    scene.client.create_topic(topic, partitions=3, configs={"retention.ms": "123456"})
    scene.until_described(topic, 3)
    assert scene.reference.describe_configs(topic)["retention.ms"] == "123456"


def describe_topic(scene: Scene) -> None:
    topic = scene.new_topic(partitions=3)
    (node,) = scene.reference.describe_cluster().nodes
    assert scene.client.describe_topic(topic) == TopicDescription(3, (node.id,) * 3)


def list_topics(scene: Scene) -> None:
    topics = {scene.new_topic(), scene.new_topic()}
    assert topics <= set(scene.client.list_topics())


def describe_configs(scene: Scene) -> None:
    topic = scene.new_topic(configs={"cleanup.policy": "compact", "max.message.bytes": "54321"})
    found = scene.client.describe_configs(topic)
    # Kafka has nothing of ours, and shows what is meant for its own tests only where somebody has set it.
    expected = {name for name in SETTINGS[Scope.TOPIC] if not name.startswith(("internal.", "moldau."))}
    assert {name for name in found if not name.startswith("moldau.")} == expected
    chosen = {name: found[name] for name in ("cleanup.policy", "max.message.bytes", "compression.type")}
    assert chosen == {
        "cleanup.policy": "compact",
        "max.message.bytes": "54321",
        "compression.type": "producer",
    }


def alter_configs(scene: Scene) -> None:
    topic = scene.new_topic(configs={"max.message.bytes": "54321"})
    scene.client.alter_configs(topic, {"retention.ms": "777777"})

    def look() -> tuple[str | None, str | None]:
        found = scene.reference.describe_configs(topic)
        return found["retention.ms"], found["max.message.bytes"]

    eventually(look, ("777777", "54321"))


def alter_to_a_bad_value(scene: Scene) -> None:
    topic = scene.new_topic()
    with refused(ErrorCode.INVALID_CONFIG):
        scene.client.alter_configs(topic, {"retention.ms": "soon"})


def add_partitions(scene: Scene) -> None:
    topic = scene.new_topic(partitions=1)
    scene.client.create_partitions(topic, total=4)
    scene.until_described(topic, 4)


def take_partitions_away(scene: Scene) -> None:
    topic = scene.new_topic(partitions=3)
    with refused(ErrorCode.INVALID_PARTITIONS):
        scene.client.create_partitions(topic, total=2)


def delete_topic(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.client.delete_topic(topic)
    eventually(lambda: topic in scene.reference.list_topics(), False)


def delete_a_missing_topic(scene: Scene) -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        scene.client.delete_topic(scene.new_name())


def create_again(scene: Scene) -> None:
    topic = scene.new_topic(partitions=1)
    scene.client.produce(topic, RECORDS)
    scene.client.delete_topic(topic)
    scene.client.create_topic(topic, partitions=2)
    scene.until_described(topic, 2)
    written = [NewRecord(b"new life", partition=partition) for partition in (0, 1)]
    check_placed(scene.client.produce(topic, written), [Placed(0, 0), Placed(1, 0)])
    for partition in (0, 1):
        (record,) = read(scene.client, topic, 1, partition=partition)
        assert (record.offset, record.value) == (0, b"new life")


def create_with_a_bad_name(scene: Scene) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        scene.client.create_topic("no/slash please", partitions=1)


def create_an_existing_topic(scene: Scene) -> None:
    topic = scene.new_topic()
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        scene.client.create_topic(topic, partitions=1)


def create_with_an_unknown_config(scene: Scene) -> None:
    with refused(ErrorCode.INVALID_CONFIG):
        scene.client.create_topic(scene.new_name(), partitions=1, configs={"no.such.setting": "1"})


def create_with_a_bad_config(scene: Scene) -> None:
    with refused(ErrorCode.INVALID_CONFIG):
        scene.client.create_topic(scene.new_name(), partitions=1, configs={"cleanup.policy": "burn"})


def create_without_partitions(scene: Scene) -> None:
    with refused(ErrorCode.INVALID_PARTITIONS):
        scene.client.create_topic(scene.new_name(), partitions=0)


def create_with_too_many_replicas(scene: Scene) -> None:
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        scene.client.create_topic(scene.new_name(), partitions=1, replication_factor=99)


def describe_cluster(scene: Scene) -> None:
    expected = scene.reference.describe_cluster()
    found = scene.client.describe_cluster()
    assert found.nodes == expected.nodes
    assert found.cluster_id in (expected.cluster_id, None)
    assert found.controller_id in (expected.controller_id, UNKNOWN)


# ---------------------------------------------------------------- writing, and reading it back


def round_trip(scene: Scene, codec: Codec) -> None:
    topic = scene.new_topic()
    placed = scene.client.produce(topic, RECORDS, codec=codec)
    check_placed(placed, [Placed(0, offset) for offset in range(len(RECORDS))])
    check_read(read(scene.client, topic, len(RECORDS)), RECORDS)


def headers(scene: Scene) -> None:
    given: Headers = (("trace", b"1"), ("empty", b""), ("trace", b"2"), ("jméno", "řeka".encode()))
    check_round_trip(
        scene, [NewRecord(b"one", b"key", given, partition=0), NewRecord(b"none", b"key", partition=0)]
    )


def headers_without_value(scene: Scene) -> None:
    given: Headers = (("absent", None), ("empty", b""), ("there", b"1"))
    check_round_trip(scene, [NewRecord(b"value", b"key", given, partition=0)])


def values_null_and_empty(scene: Scene) -> None:
    values = [None, b"", b"value", None, b""]
    check_round_trip(
        scene, [NewRecord(value, b"key-%d" % at, partition=0) for at, value in enumerate(values)]
    )


def keys_null_and_empty(scene: Scene) -> None:
    keys = [None, b"", b"key"]
    check_round_trip(scene, [NewRecord(b"value", key, partition=0) for key in keys])


def neither_key_nor_value(scene: Scene) -> None:
    check_round_trip(scene, [NewRecord(None, None, partition=0)])


def any_bytes(scene: Scene) -> None:
    data = bytes(range(256))
    check_round_trip(scene, [NewRecord(data, data[::-1], partition=0)])


def timestamps(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.client.produce(
        topic, [NewRecord(b"%d" % each, timestamp=PAST + each, partition=0) for each in (5, 0, 9)]
    )
    assert [record.timestamp - PAST for record in read(scene.client, topic, 3)] == [5, 0, 9]


def many_records(scene: Scene) -> None:
    topic = scene.new_topic(partitions=2)
    written = [NewRecord(b"value %d" % number, b"key", partition=number % 2) for number in range(3_000)]
    scene.client.produce(topic, sorted(written, key=lambda record: record.partition or 0), codec="lz4")
    for partition in (0, 1):
        found = read(scene.client, topic, 1_500, partition=partition)
        assert [record.offset for record in found] == list(range(1_500))
        numbers = range(partition, 3_000, 2)
        assert [record.value for record in found] == [b"value %d" % number for number in numbers]


def large_value(scene: Scene) -> None:
    check_round_trip(scene, [NewRecord(_incompressible(1_000_000), b"large", partition=0)])


def too_large(scene: Scene) -> None:
    topic = scene.new_topic()
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        scene.client.produce(topic, [NewRecord(_incompressible(2_000_000), b"larger", partition=0)])
    assert scene.reference.list_offsets(topic, partition=0) == OffsetRange(0, 0)


def idempotent(scene: Scene) -> None:
    topic = scene.new_topic()
    placed = scene.client.produce(topic, RECORDS, acks=-1, idempotent=True)
    check_placed(placed, [Placed(0, offset) for offset in range(len(RECORDS))])
    check_read(read(scene.client, topic, len(RECORDS)), RECORDS)
    assert scene.reference.list_offsets(topic, partition=0).latest == len(RECORDS)


def acks_leader(scene: Scene) -> None:
    topic = scene.new_topic()
    check_placed(
        scene.client.produce(topic, RECORDS, acks=1), [Placed(0, offset) for offset in range(len(RECORDS))]
    )
    check_read(read(scene.client, topic, len(RECORDS)), RECORDS)


def acks_none(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.client.produce(topic, RECORDS, acks=0)
    check_read(read(scene.client, topic, len(RECORDS)), RECORDS)


def produce_to_a_missing_partition(scene: Scene) -> None:
    topic = scene.new_topic(partitions=1)
    # The Java client waits for the partition to appear, and gives up after a while.
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT):
        scene.client.produce(topic, [NewRecord(b"lost", b"key", partition=7)])


def produce_to_a_bad_name(scene: Scene) -> None:
    # aiokafka asks again for a while, and then says that the topic is unknown.
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        scene.client.produce("no/slash please", [NewRecord(b"lost", b"key")])


def produce_creates_the_topic(scene: Scene) -> None:
    topic = scene.new_name()
    check_placed(scene.client.produce(topic, [NewRecord(b"first", b"key", partition=0)]), [Placed(0, 0)])
    check_read(read(scene.client, topic, 1), [NewRecord(b"first", b"key")])


def compacted_topics_need_keys(scene: Scene) -> None:
    topic = scene.new_topic(configs={"cleanup.policy": "compact"})
    with refused(ErrorCode.INVALID_RECORD):
        scene.client.produce(topic, [NewRecord(b"without a key", partition=0)])
    check_placed(scene.client.produce(topic, [NewRecord(b"with one", b"key", partition=0)]), [Placed(0, 0)])


def log_append_time(scene: Scene) -> None:
    topic = scene.new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time_ns() // 1_000_000
    scene.reference.produce(topic, [NewRecord(b"old", timestamp=PAST, partition=0)])
    scene.client.produce(topic, [NewRecord(b"new", b"key", partition=0)])
    after_ms = time.time_ns() // 1_000_000
    for record in read(scene.client, topic, 2):
        assert before_ms <= record.timestamp <= after_ms


# ---------------------------------------------------------------- where reading starts


def consume_earliest(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    check_read(read(scene.client, topic, len(RECORDS), offset="earliest"), RECORDS)


def consume_latest(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    with reading(partial(read, scene.client, topic, 1, offset="latest")) as reader:
        # Nobody tells when the consumer has found the end, so there is something new until it has.
        while reader.is_alive():
            scene.reference.produce(topic, [NewRecord(b"news", partition=0)])
    (record,) = reader.result()
    assert record.value == b"news"
    assert record.offset >= len(RECORDS)


def consume_from_within_a_batch(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    scene.reference.produce(topic, RECORDS, codec="gzip")
    for offset in (7, len(RECORDS) + 7):
        found = read(scene.client, topic, 5, offset=offset)
        assert [record.offset for record in found] == list(range(offset, offset + 5))
        assert [record.value for record in found] == [record.value for record in RECORDS[7:12]]


def consume_from_a_time(scene: Scene) -> None:
    topic = _topic_with_times(scene)
    for timestamp, offset in ((PAST - 1, 0), (PAST + 4_000, 4), (PAST + 4_001, 5), (PAST + 13_999, 14)):
        found = scene.client.consume_from_time(
            topic, partition=0, timestamp=timestamp, count=3, timeout_ms=READ_TIMEOUT_MS
        )
        assert found.offset == offset
        assert [record.offset for record in found.records] == list(range(offset, offset + 3))


def look_up_a_time(scene: Scene) -> None:
    topic = _topic_with_times(scene)
    times = [PAST - 1, PAST + 4_000, PAST + 4_001, PAST + 13_999, PAST + 19_001]
    found = [scene.client.offset_for_time(topic, partition=0, timestamp=timestamp) for timestamp in times]
    assert found == [0, 4, 5, 14, -1]


def _topic_with_times(scene: Scene) -> str:
    """Two batches of ten records, a second apart, one of them compressed."""
    topic = scene.new_topic()
    ticks = [NewRecord(b"tick", timestamp=PAST + 1_000 * each, partition=0) for each in range(20)]
    scene.reference.produce(topic, ticks[:10])
    scene.reference.produce(topic, ticks[10:], codec="gzip")
    return topic


def consume_beyond_the_end(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        scene.client.consume(topic, partition=0, offset=1_000, count=1, timeout_ms=READ_TIMEOUT_MS)


def list_offsets(scene: Scene) -> None:
    topic = scene.new_topic()
    assert scene.client.list_offsets(topic, partition=0) == OffsetRange(0, 0)
    scene.reference.produce(topic, RECORDS)
    assert scene.client.list_offsets(topic, partition=0) == OffsetRange(0, len(RECORDS))


def delete_records(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    assert scene.client.delete_records(topic, partition=0, before_offset=7) == 7
    assert scene.reference.list_offsets(topic, partition=0) == OffsetRange(7, len(RECORDS))


def delete_records_beyond_the_end(scene: Scene) -> None:
    topic = scene.new_topic()
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        scene.client.delete_records(topic, partition=0, before_offset=1)


def consume_after_deletion(scene: Scene) -> None:
    topic = scene.new_topic()
    scene.reference.produce(topic, RECORDS)
    scene.reference.delete_records(topic, partition=0, before_offset=7)
    found = read(scene.client, topic, 3, offset="earliest")
    assert [record.offset for record in found] == [7, 8, 9]
    assert scene.client.list_offsets(topic, partition=0) == OffsetRange(7, len(RECORDS))


def long_poll(scene: Scene) -> None:
    topic = scene.new_topic()
    with reading(partial(read, scene.client, topic, 5, offset=0, timeout_ms=3 * LATE_S * 1_000)) as reader:
        for number in range(5):
            scene.reference.produce(topic, [NewRecord(b"%d" % number, partition=0)])
        reader.join(LATE_S)
        assert not reader.is_alive(), "what was written while the consumer waited did not reach it"
    assert [record.value for record in reader.result()] == [b"0", b"1", b"2", b"3", b"4"]


# ---------------------------------------------------------------- groups


def group_reads_everything(scene: Scene, protocol: GroupProtocol) -> None:
    topic, group = scene.new_topic(partitions=3), scene.new_name()
    written = write_to_all(scene, topic, partitions=3)
    assert read_as_member(scene.client, topic, group, written, protocol) == written


def group_goes_on(scene: Scene, protocol: GroupProtocol) -> None:
    topic, group = scene.new_topic(partitions=3), scene.new_name()
    for _ in range(2):
        written = write_to_all(scene, topic, partitions=3)
        assert read_as_member(scene.client, topic, group, written, protocol) == written


def group_is_handed_over(scene: Scene) -> None:
    topic, group = scene.new_topic(partitions=3), scene.new_name()
    for reader in (scene.client, scene.reference, scene.client):
        written = write_to_all(scene, topic, partitions=3)
        assert read_as_member(reader, topic, group, written, "classic") == written


# ---------------------------------------------------------------- what another client wrote


def read_by_the_reference(scene: Scene) -> None:
    topic = scene.new_topic()
    for codec in CODECS:
        scene.client.produce(topic, RECORDS, codec=codec)
    check_read(read(scene.reference, topic, len(CODECS) * len(RECORDS)), RECORDS * len(CODECS))


def read_what_the_reference_wrote(scene: Scene) -> None:
    topic = scene.new_topic()
    for codec in CODECS:
        scene.reference.produce(topic, RECORDS, codec=codec)
    check_read(read(scene.client, topic, len(CODECS) * len(RECORDS)), RECORDS * len(CODECS))


SCENARIOS = [
    Scenario("create-topic", "a topic is created with its partitions and settings", create_topic),
    Scenario("describe-topic", "a topic shows its partitions and their leaders", describe_topic),
    Scenario("list-topics", "topics are listed", list_topics),
    Scenario("describe-configs", "every setting of a topic is shown", describe_configs),
    Scenario("alter-configs", "one setting changes and the others stay", alter_configs),
    Scenario("alter-to-bad-value", "a bad new value: INVALID_CONFIG", alter_to_a_bad_value),
    Scenario("add-partitions", "partitions are added", add_partitions),
    Scenario("take-partitions-away", "fewer partitions: INVALID_PARTITIONS", take_partitions_away),
    Scenario("delete-topic", "a topic is deleted", delete_topic),
    Scenario(
        "delete-missing-topic",
        "a topic that is not there cannot be deleted: UNKNOWN_TOPIC_OR_PARTITION",
        delete_a_missing_topic,
    ),
    Scenario("create-again", "a topic deleted and created again under its name works at once", create_again),
    Scenario("create-bad-name", "a bad name: INVALID_TOPIC_EXCEPTION", create_with_a_bad_name),
    Scenario("create-existing", "a second topic of a name: TOPIC_ALREADY_EXISTS", create_an_existing_topic),
    Scenario(
        "create-unknown-config",
        "an unknown setting: INVALID_CONFIG",
        create_with_an_unknown_config,
    ),
    Scenario("create-bad-config", "a bad value of a setting: INVALID_CONFIG", create_with_a_bad_config),
    Scenario("create-no-partitions", "no partitions: INVALID_PARTITIONS", create_without_partitions),
    Scenario(
        "create-too-many-replicas",
        "more replicas than brokers: INVALID_REPLICATION_FACTOR",
        create_with_too_many_replicas,
    ),
    Scenario("describe-cluster", "the cluster's id, controller and brokers are told", describe_cluster),
    *(
        Scenario(
            f"codec-{codec}",
            f"several records in a batch, keys and unicode, compression {codec}: written and read",
            partial(round_trip, codec=codec),
        )
        for codec in CODECS
    ),
    Scenario("headers", "headers come back: repeated, empty, in unicode", headers),
    Scenario("headers-null", "a header without a value is not an empty one", headers_without_value),
    Scenario("values-null-and-empty", "a null value is not an empty one", values_null_and_empty),
    Scenario("keys-null-and-empty", "a null key is not an empty one", keys_null_and_empty),
    Scenario("no-key-no-value", "a record may have neither key nor value", neither_key_nor_value),
    Scenario("any-bytes", "keys and values hold any byte", any_bytes),
    Scenario("timestamps", "the producer's timestamps are kept, in any order", timestamps),
    Scenario("many-records", "thousands of records in two partitions keep their order", many_records),
    Scenario("large-value", "a value of a megabyte", large_value),
    Scenario("too-large", "a batch above max.message.bytes is refused: MESSAGE_TOO_LARGE", too_large),
    Scenario("idempotent", "an idempotent producer with acks=all", idempotent),
    Scenario("acks-1", "acks=1", acks_leader),
    Scenario("acks-0", "acks=0", acks_none),
    Scenario(
        "produce-missing-partition",
        "a partition that is not there cannot be written to",
        produce_to_a_missing_partition,
    ),
    Scenario(
        "produce-bad-name",
        "a topic with a bad name cannot be written to",
        produce_to_a_bad_name,
    ),
    Scenario("auto-create", "writing to a missing topic creates it", produce_creates_the_topic),
    Scenario(
        "compacted-needs-keys",
        "a compacted topic refuses a record without a key: INVALID_RECORD",
        compacted_topics_need_keys,
    ),
    Scenario("log-append-time", "the broker's timestamps replace the producer's", log_append_time),
    Scenario("consume-earliest", "reading from the beginning", consume_earliest),
    Scenario("consume-latest", "reading only what comes from now on", consume_latest),
    Scenario("consume-mid-batch", "reading from an offset within a batch", consume_from_within_a_batch),
    Scenario("consume-from-time", "reading from a time, within a batch too", consume_from_a_time),
    Scenario("offset-for-time", "looking up the offset of a time; -1 after the last", look_up_a_time),
    Scenario("consume-beyond-end", "reading beyond the end: OFFSET_OUT_OF_RANGE", consume_beyond_the_end),
    Scenario("list-offsets", "where a partition begins and ends", list_offsets),
    Scenario("delete-records", "records are deleted up to an offset", delete_records),
    Scenario(
        "delete-records-beyond-end",
        "more than there is cannot be deleted: OFFSET_OUT_OF_RANGE",
        delete_records_beyond_the_end,
    ),
    Scenario("consume-after-deletion", "the beginning moves when records go", consume_after_deletion),
    Scenario("long-poll", "a consumer that waits gets what is written later", long_poll),
    Scenario(
        "group-join",
        "as the only member of a group it reads all partitions",
        partial(group_reads_everything, protocol="classic"),
    ),
    Scenario(
        "group-resume",
        "the group goes on where it had committed, when its member comes again",
        partial(group_goes_on, protocol="classic"),
    ),
    Scenario(
        "group-hand-over",
        "librdkafka goes on where it had committed, and it where librdkafka had",
        group_is_handed_over,
    ),
    Scenario(
        "group-new-protocol",
        "joining, committing and going on in a group that the coordinator assigns (KIP-848)",
        partial(group_goes_on, protocol="consumer"),
    ),
    Scenario("librdkafka-reads", "librdkafka reads what it wrote with every codec", read_by_the_reference),
    Scenario(
        "reads-librdkafka",
        "it reads what librdkafka wrote with every codec",
        read_what_the_reference_wrote,
    ),
]


# ---------------------------------------------------------------- what scenarios are made of


@contextmanager
def refused(*codes: ErrorCode) -> Iterator[None]:
    """What happens inside fails with one of these errors."""
    try:
        yield
    except DriverError as error:
        if error.code not in codes:
            raise AssertionError(f"expected {codes[0].name}, not {error}") from error
    else:
        raise AssertionError(f"expected {codes[0].name}, but it succeeded")


def eventually(look: Callable[[], object], expected: object) -> None:
    """Look until a change has come through from the controller to the broker, as it does within moments."""
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while (seen := look()) != expected:
        assert time.monotonic() < deadline, f"still {seen!r}, not {expected!r}"
        time.sleep(0.01)


def read(
    driver: Driver,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    offset: Start = 0,
    timeout_ms: int = READ_TIMEOUT_MS,
) -> list[ReadRecord]:
    """So many records of a partition."""
    found = driver.consume(topic, partition=partition, offset=offset, count=count, timeout_ms=timeout_ms)
    assert len(found) == count, f"{len(found)} records came of {count}"
    return found


def write_to_all(scene: Scene, topic: str, *, partitions: int) -> list[tuple[int, int]]:
    """Partition and offset of some more records in every partition, written by the reference client."""
    records = [NewRecord(b"more", partition=partition) for partition in range(partitions) for _ in range(5)]
    return [(placed.partition, placed.offset) for placed in scene.reference.produce(topic, records)]


def read_as_member(
    driver: Driver, topic: str, group: str, expected: Sequence[object], protocol: GroupProtocol
) -> list[tuple[int, int]]:
    """What a new member of a group reads, in order, until it has as much as expected."""
    found = driver.read_in_group(
        topic, group=group, count=len(expected), timeout_ms=READ_TIMEOUT_MS, protocol=protocol
    )
    return sorted(found)


def check_round_trip(scene: Scene, records: Sequence[NewRecord]) -> None:
    """What the client writes, it and the reference read."""
    topic = scene.new_topic()
    check_placed(scene.client.produce(topic, records), [Placed(0, offset) for offset in range(len(records))])
    check_read(read(scene.reference, topic, len(records)), records)
    check_read(read(scene.client, topic, len(records)), records)


def check_placed(placed: Sequence[Placed], expected: Sequence[Placed]) -> None:
    """Records were written where they should be, as far as the client tells."""
    told = [
        Placed(
            where.partition if each.partition == UNKNOWN else each.partition,
            where.offset if each.offset == UNKNOWN else each.offset,
        )
        for each, where in zip(placed, expected, strict=True)
    ]
    assert told == list(expected)


def check_read(found: Sequence[ReadRecord], written: Sequence[NewRecord]) -> None:
    """The records are those that were written, from offset 0 on."""
    assert [record.offset for record in found] == list(range(len(written)))
    for each, record in zip(found, written, strict=True):
        assert (each.key, each.value, each.headers) == (record.key, record.value, record.headers)


class Reader(threading.Thread):
    """A consumer that waits while the scenario goes on."""

    def __init__(self, ask: Callable[[], list[ReadRecord]]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._found: list[ReadRecord] | BaseException = []

    def run(self) -> None:
        try:
            self._found = self._ask()
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            self._found = error

    def result(self) -> list[ReadRecord]:
        """What was read, or the error that reading ended with."""
        self.join()
        if isinstance(self._found, BaseException):
            raise self._found
        return self._found


@contextmanager
def reading(ask: Callable[[], list[ReadRecord]]) -> Iterator[Reader]:
    """A consumer that reads meanwhile."""
    reader = Reader(ask)
    reader.start()
    try:
        yield reader
    finally:
        reader.join()


def _incompressible(size: int) -> bytes:
    """Bytes that no codec makes much smaller, without those that command lines split their input at."""
    state = 1
    found = bytearray()
    while len(found) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
        found += b"%016x" % state
    return bytes(found[:size])
