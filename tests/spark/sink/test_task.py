"""What a task does with its rows, on a real broker and without Spark."""

import itertools
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from spark.sink.rows import columns_in, rows

import moldau
from moldau.client import connect_sync
from moldau.client.settings import ClientSettings
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.spark.errors import NoBroker
from moldau.spark.options import WriteOptions
from moldau.spark.sink import task
from moldau.spark.sink.errors import BadRow, BadTopic, NotWritten
from moldau.spark.sink.producers import borrowed_producer, producer_settings
from moldau.spark.sink.task import TaskReport, TaskWriter
from moldau.testing import Cluster
from moldau.wire.records.record import Record


def options_for(broker: Cluster, **settings: object) -> WriteOptions:
    given = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
    return WriteOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **given})


def write(
    broker: Cluster, batches: Iterable[pa.RecordBatch], *, topic: str | None = None, **settings: object
) -> TaskReport:
    options = options_for(broker, **settings)
    batches = iter(batches)
    first = next(batches)
    with borrowed_producer(options) as producer:
        parsed = ClientSettings.parse(producer_settings(options))
        writer = TaskWriter(producer, columns_in(first, topic=topic), parsed, task=3)
        return writer.write(itertools.chain([first], batches))


def read(broker: Cluster, topic: str, count: int) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    with (
        connect_sync(broker.bootstrap_servers) as client,
        client.consumer([topic], auto_offset_reset="earliest") as consumer,
    ):
        while sum(map(len, found.values())) < count:
            for place, records in consumer.poll(timeout_ms=10_000).items():
                found.setdefault(place.partition, []).extend(records)
    return found


def numbered(count: int, *, first: int = 0, size: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return rows(
        key=[b"key %d" % (n % 100) for n in numbers], value=[b"%d " % n + b"x" * size for n in numbers]
    )


def test_all_rows_are_written_and_the_report_says_where(broker: Cluster) -> None:
    topic = broker.topic(partitions=3)
    report = write(broker, [numbered(5_000), numbered(5_000, first=5_000)], topic=topic)
    found = read(broker, topic, 10_000)
    for partition, records in found.items():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
        written = report.written[TopicPartition(TopicName(topic), PartitionIndex(partition))]
        assert (written.records, written.first_offset) == (len(records), 0)
        assert written.last_offset == len(records) - 1
    assert report.records == sum(map(len, found.values())) == 10_000


def test_much_more_than_fits_into_memory_is_written(broker: Cluster) -> None:
    topic = broker.topic(partitions=2)
    batches = [numbered(1_000, first=first, size=1_000) for first in range(0, 20_000, 1_000)]
    report = write(broker, batches, topic=topic, buffer_memory=2**20)
    assert report.records == 20_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_the_topic_does_not_take_is_split(broker: Cluster, codec: str) -> None:
    topic = broker.topic(settings={"max.message.bytes": 2_000})
    report = write(broker, [numbered(2_000, size=20)], topic=topic, compression_type=codec)
    values = [int((record.value or b"").split()[0]) for record in read(broker, topic, 2_000)[0]]
    assert values == list(range(2_000))
    assert report.records == 2_000


def test_a_row_that_the_topic_does_not_take_is_named(broker: Cluster) -> None:
    topic = broker.topic(settings={"max.message.bytes": 2_000})
    values = [b"small"] * 50
    values[17] = b"x" * 3_000
    chunk = rows(key=[b"key %d" % row for row in range(50)], value=values)
    with pytest.raises(NotWritten) as error:
        write(broker, [numbered(10), chunk], topic=topic)
    assert str(error.value).startswith(
        f"Row 28 of task 3 (key 'key 17') could not be written: MESSAGE_TOO_LARGE (10) at {topic}-0: "
    )
    assert "Raise max.message.bytes of the topic" in str(error.value)


def test_a_row_that_no_request_may_hold_is_named_before_anything_of_its_chunk_is_sent(
    broker: Cluster,
) -> None:
    topic = broker.topic()
    with pytest.raises(NotWritten) as error:
        write(broker, [rows(value=[b"a", b"x" * 5_000])], topic=topic, max_request_size=4_000)
    assert str(error.value) == (
        "Row 2 of task 3 (without a key) is too large: its record has 5070 bytes, and option"
        " kafka.max.request.size allows 4000."
    )


def test_rows_without_a_key_for_a_compacted_topic_are_named_as_what_is_wrong(broker: Cluster) -> None:
    topic = broker.topic(settings={"cleanup.policy": "compact"})
    with pytest.raises(
        NotWritten, match=r"Row 1 of task 3 \(without a key\) and 1 behind it could not be writ"
    ) as e:
        write(broker, [rows(value=[b"a", b"b"])], topic=topic)
    assert "A compacted topic needs a key in every record." in str(e.value)


def test_a_topic_that_is_not_there_is_named(broker: Cluster) -> None:
    def attempt(batch: pa.RecordBatch, *, topic: str | None = None) -> None:
        write(broker, [batch], topic=topic, allow_auto_create_topics="false", max_block_ms=500)

    with pytest.raises(BadTopic, match=r"Option 'topic': topic 'missing' does not exist\. Check the name"):
        attempt(rows(value=[b"a"]), topic="missing")
    there = broker.topic()
    with pytest.raises(
        BadRow, match=r"Row 2 of task 3 \(key 'k'\) cannot be written: topic 'missing' does not"
    ):
        attempt(rows(key=[b"k"] * 2, value=[b"a"] * 2, topic=[there, "missing"]))


def test_a_topic_that_is_not_there_is_not_waited_for_as_a_broker_is(
    broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "GONE_AFTER_S", 0.5)
    with pytest.raises(BadTopic, match="topic 'missing' does not exist"):
        # Two minutes is how long one may be away.
        write(broker, [rows(value=[b"a"])], topic="missing", allow_auto_create_topics="false")


def test_a_topic_that_is_made_while_a_task_looks_for_it_is_written(broker: Cluster) -> None:
    name = "made-meanwhile"
    making = threading.Timer(0.5, broker.topic, [name])
    making.start()
    assert write(broker, [rows(value=[b"a"])], topic=name, allow_auto_create_topics="false").records == 1
    making.join()


def test_a_topic_is_created_where_brokers_do_that(broker: Cluster) -> None:
    assert write(broker, [rows(value=[b"a"])], topic="made-by-writing").records == 1
    assert read(broker, "made-by-writing", 1)[0][0].value == b"a"


def test_tasks_of_a_process_share_a_producer_one_after_the_other(broker: Cluster) -> None:
    options = options_for(broker)
    with borrowed_producer(options) as first:
        pass
    with borrowed_producer(options) as second:
        assert second is first
        with borrowed_producer(options) as at_the_same_time:
            assert at_the_same_time is not first
    with borrowed_producer(options) as third, borrowed_producer(options_for(broker, acks="1")) as different:
        assert third is at_the_same_time
        assert different is not third


def test_a_task_that_fails_gives_its_producer_up_with_what_it_has_not_sent(broker: Cluster) -> None:
    topic = broker.topic(settings={"max.message.bytes": 2_000})
    options = options_for(broker)
    with borrowed_producer(options) as before:
        pass
    with pytest.raises(NotWritten):
        write(broker, [rows(value=[b"x" * 3_000])], topic=topic)
    with borrowed_producer(options) as afterwards:
        assert afterwards is not before
    assert write(broker, [rows(value=[b"small"])], topic=topic).records == 1


def test_producers_are_idempotent_and_wait_for_all_replicas_unless_told_otherwise(broker: Cluster) -> None:
    settings = ClientSettings.parse(producer_settings(options_for(broker)))
    assert settings.is_idempotent
    assert settings.acks == -1
    given = producer_settings(options_for(broker, batch_size=1_000, delivery_timeout_ms=7_000))
    assert given == {"batch_size": "1000", "delivery_timeout_ms": "7000", "max_block_ms": 7_000}


@pytest.fixture
def lone_broker() -> Iterator[Cluster]:
    """A broker that may be killed."""
    with moldau.cluster() as cluster:
        yield cluster


def test_a_broker_that_comes_back_has_every_row_once(lone_broker: Cluster) -> None:
    topic = lone_broker.topic(partitions=2)
    coming_back = threading.Thread(target=lone_broker.restart, args=[1])

    def batches() -> Iterator[pa.RecordBatch]:
        for turn in range(40):
            if turn == 15:
                lone_broker.kill(1)
                coming_back.start()
            yield numbered(1_000, first=turn * 1_000, size=2_000)

    assert write(lone_broker, batches(), topic=topic).records == 40_000
    coming_back.join()
    values = [
        int((r.value or b"").split()[0]) for rs in read(lone_broker, topic, 40_000).values() for r in rs
    ]
    assert sorted(values) == [*range(40_000)]


def test_a_broker_that_is_away_is_waited_for_to_say_whether_there_is_the_topic(lone_broker: Cluster) -> None:
    with borrowed_producer(options_for(lone_broker)):
        topic = lone_broker.topic()
    lone_broker.kill(1)
    coming_back = threading.Timer(0.5, lone_broker.restart, [1])
    coming_back.start()
    assert write(lone_broker, [rows(value=[b"a"])], topic=topic).records == 1
    coming_back.join()


def test_a_broker_that_stays_away_is_an_error_once_the_time_for_delivery_is_over(
    lone_broker: Cluster,
) -> None:
    topic = lone_broker.topic()

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbered(10_000, size=1_000)
        lone_broker.kill(1)
        yield numbered(10_000, first=10_000, size=1_000)

    with pytest.raises(NotWritten) as error:
        write(
            lone_broker,
            batches(),
            topic=topic,
            delivery_timeout_ms=2_000,
            request_timeout_ms=1_000,
            buffer_memory=10**9,
        )
    # Whichever comes first: the end of the time, or the last try to reach a broker.
    assert "could not be written: " in str(error.value)
    reasons = ("Not delivered within 2000 ms", "No broker could be reached")
    assert any(reason in str(error.value) for reason in reasons), str(error.value)


def test_a_task_that_finds_no_broker_says_which_it_tried(lone_broker: Cluster) -> None:
    topic = lone_broker.topic()
    lone_broker.kill(1)
    with pytest.raises(NoBroker, match=r"Tried 127\.0\.0\.1:.*option kafka\.bootstrap\.servers"):
        write(lone_broker, [numbered(1)], topic=topic, delivery_timeout_ms=1_000)
