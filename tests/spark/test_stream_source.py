"""A stream as Spark drives it, step by step, against a real broker and without Spark."""

import json
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import IntegerType, StructField, StructType

from moldau.client import connect_sync
from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition
from moldau.spark.columns import source_schema
from moldau.spark.errors import BadCheckpoint, BadOption, DataLoss, MissingTopic
from moldau.spark.stream_source import StreamReader
from moldau.testing import Cluster

Json = dict[str, Any]


class Query:
    """What Spark does with a reader: offsets pass through JSON, and tasks through pickle."""

    def __init__(self, broker: Cluster, schema: StructType | None = None, **options: str) -> None:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
            **options,
        }
        self._schema = schema or source_schema(with_headers=False)
        self._given = given
        self.reader = StreamReader(self._schema, given)
        # What the checkpoint holds: where the last batch that is done ended.
        self.start: Json | None = None

    def end(self, limit: ReadLimit | None = None) -> Json:
        """Where the next batch ends."""
        start = self.start if self.start is not None else self.initial()
        return as_json(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))

    def initial(self) -> Json:
        return as_json(self.reader.initialOffset())

    def read(self, start: Json, end: Json) -> list[bytes]:
        """The values of a batch."""
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        worker = pickle.loads(pickle.dumps(StreamReader(self._schema, self._given)))
        return [
            row["value"] for each in partitions for batch in worker.read(each) for row in batch.to_pylist()
        ]

    def batch(self, limit: ReadLimit | None = None) -> list[bytes]:
        """Run a batch, if there is one."""
        end = self.end(limit)
        start = self.start if self.start is not None else self.initial()
        values = [] if end == start else self.read(start, end)
        self.start = end
        return values

    def restarted(self, **options: str) -> "Query":
        """The same query in another process, from its checkpoint."""
        self.reader.stop()
        again = object.__new__(Query)
        again._schema, again._given = self._schema, {**self._given, **options}
        again.reader = StreamReader(again._schema, again._given)
        again.start = self.start
        return again


def as_json(offset: Json) -> Json:
    told: Json = json.loads(json.dumps(offset))
    return told


def plain(offset: Json) -> Json:
    """Without what is ours."""
    return {topic: partitions for topic, partitions in offset.items() if not topic.startswith("@")}


def send(broker: Cluster, topic: str, *values: bytes, partition: int = 0) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def run_until_something_comes(query: Query) -> list[bytes]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := query.batch():
            return found
    raise AssertionError("nothing comes")


def committed(broker: Cluster, group: str) -> dict[TopicPartition, int]:
    with connect_sync(broker.bootstrap_servers) as client:
        return {place: row.offset for place, row in client.admin.group_offsets(group).items()}


@pytest.fixture
def own_topic(broker: Cluster) -> Iterator[str]:
    """A topic that the test may delete, on a broker that it may kill."""
    yield broker.topic()
    broker.heal()


# -------------------------------------------------------------------------------------------- batches


def test_batches_follow_each_other_without_gap_or_overlap(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    send(broker, topic, *numbers(10))
    assert query.batch() == numbers(10)
    assert query.batch() == []
    send(broker, topic, *numbers(5, first=10))
    assert query.batch() == numbers(5, first=10)


def test_where_there_is_nothing_new_the_end_is_the_start_to_the_letter(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    send(broker, topic, *numbers(10))
    query.batch()
    query.batch()
    assert query.end() == query.start


def test_a_new_query_begins_at_the_end_unless_told_otherwise(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, startingOffsets="latest")
    assert query.batch() == []
    send(broker, topic, b"new")
    assert query.batch() == [b"new"]


def test_a_limit_makes_several_batches(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, maxOffsetsPerTrigger="4")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert [query.batch() for _ in range(4)] == [numbers(4), numbers(4, 4), numbers(2, 8), []]


def test_a_trigger_that_wants_all_gets_all(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    assert query.batch(ReadAllAvailable()) == numbers(10)


def test_a_batch_waits_for_enough_records(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic, minOffsetsPerTrigger="5")
    send(broker, topic, *numbers(2))
    assert query.batch() == numbers(2), "the first batch does not wait"
    send(broker, topic, *numbers(4))
    assert query.batch() == []
    send(broker, topic, b"4")
    assert query.batch() == numbers(5)


def test_a_batch_does_not_wait_longer_than_it_may(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay="0s")
    query.batch()
    send(broker, topic, b"one")
    assert query.batch() == [b"one"]


def test_available_now_reads_what_was_there_and_ends(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    query.reader.prepareForTriggerAvailableNow()
    send(broker, topic, *numbers(5, first=10))
    assert [query.batch() for _ in range(4)] == [numbers(4), numbers(4, 4), numbers(2, 8), []]
    again = query.restarted()
    again.reader.prepareForTriggerAvailableNow()
    assert [again.batch() for _ in range(3)] == [numbers(4, 10), numbers(1, 14), []]


def test_the_latest_offsets_are_reported(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, maxOffsetsPerTrigger="4")
    assert query.reader.reportLatestOffset() is None
    assert plain(query.end()) == {topic: {"0": 4}}
    assert query.reader.reportLatestOffset() == {topic: {"0": 10}}


def test_tasks_go_by_the_options(broker: Cluster) -> None:
    topic = broker.topic(partitions=3)
    for partition in range(3):
        send(broker, topic, *numbers(10), partition=partition)
    for options, count in (({}, 1), ({"minOffsetsPerTask": "1"}, 3), ({"minPartitions": "6"}, 6)):
        query = Query(broker, None, subscribe=topic, **options)
        assert len(query.reader.partitions(query.initial(), query.end())) == count


# -------------------------------------------------------------------------------------------- restarts


def test_a_query_goes_on_from_its_checkpoint(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    send(broker, topic, *numbers(10))
    query.batch()
    send(broker, topic, *numbers(5, first=10))
    assert query.restarted().batch() == numbers(5, first=10)


def test_the_first_batch_is_repeated_as_it_was(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": -2}}}}')
    end = query.end()
    assert query.read(query.initial(), end) == numbers(10)
    # The query ends before it has noted that the batch is done, and by now would begin elsewhere.
    send(broker, topic, *numbers(5, first=10))
    again = query.restarted(startingOffsets="latest")
    assert again.read(again.initial(), end) == numbers(10)
    again.start = end
    assert again.batch() == numbers(5, first=10)


def test_the_first_batch_is_repeated_though_there_are_more_partitions_by_now(
    broker: Cluster, topic: str
) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 2}}}}')
    end = query.end()
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.add_partitions(topic, 2)
    send(broker, topic, b"new", partition=1)
    again = query.restarted()
    assert again.read(again.initial(), end) == numbers(8, first=2)
    again.start = end
    assert again.batch() == [b"new"]


def test_the_first_batch_is_repeated_though_a_topic_is_gone_by_now(broker: Cluster, own_topic: str) -> None:
    other = broker.topic()
    send(broker, own_topic, b"gone")
    send(broker, other, b"here")
    query = Query(broker, subscribe=f"{own_topic},{other}", failOnDataLoss="false")
    end = query.end()
    broker.delete_topic(own_topic)
    again = query.restarted()
    assert again.read(again.initial(), end) == [b"here"]
    again.start = end
    assert again.batch() == []
    strict = query.restarted(failOnDataLoss="true")
    with pytest.raises(DataLoss, match="the partition is gone"):
        strict.read(strict.initial(), end)


def test_the_first_batch_of_spark_s_connector_is_repeated_from_where_a_query_would_begin(
    broker: Cluster, topic: str
) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic)
    # That connector notes in another place where it began.
    assert query.read(query.initial(), {topic: {"0": 7}}) == numbers(7)


def test_a_later_batch_is_repeated_as_it_was(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    send(broker, topic, *numbers(10))
    query.batch()
    send(broker, topic, *numbers(5, first=10))
    end = query.end()
    send(broker, topic, *numbers(5, first=15))
    again = query.restarted()
    assert query.start is not None
    assert again.read(query.start, end) == numbers(5, first=10)


def test_a_query_of_spark_s_connector_for_kafka_goes_on(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic)
    query.start = {topic: {"0": 7}}
    assert query.batch() == numbers(3, first=7)
    assert query.batch() == []


# -------------------------------------------------------------------------------- what comes and goes


def test_new_partitions_are_read_from_their_beginning(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic, startingOffsets="latest")
    query.batch()
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.add_partitions(topic, 2)
    send(broker, topic, b"old", partition=0)
    send(broker, topic, b"new", partition=1)
    # A running query looks what partitions there are once a second.
    found = query.batch() + run_until_something_comes(query)
    assert sorted(found) == [b"new", b"old"]


def test_new_topics_that_match_are_read_from_their_beginning(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribePattern=rf"{topic}.*", startingOffsets="latest")
    send(broker, topic, b"before")
    query.batch()
    send(broker, broker.topic(f"{topic}-more"), b"first", b"second")
    again = query.restarted()
    assert again.batch() == [b"first", b"second"]


def test_a_pattern_without_topics_waits_for_one(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribePattern=rf"{topic}-later.*")
    assert query.batch() == []
    send(broker, broker.topic(f"{topic}-later"), b"first")
    assert query.restarted().batch() == [b"first"]


def test_records_that_expired_are_lost_and_told(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    send(broker, topic, *numbers(10))
    query.batch()
    send(broker, topic, *numbers(10, first=10))
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.delete_records({(topic, 0): 14})
    with pytest.raises(DataLoss, match=f"{topic}-0: offset 10 was to be read next, and the log begins at 14"):
        query.batch()
    loose = query.restarted(failOnDataLoss="false")
    assert loose.batch() == numbers(6, first=14)
    assert loose.batch() == []


def test_a_topic_that_was_created_again_is_lost_and_told(broker: Cluster, own_topic: str) -> None:
    query = Query(broker, subscribe=own_topic)
    send(broker, own_topic, *numbers(3))
    query.batch()
    broker.delete_topic(own_topic)
    broker.topic(own_topic)
    # More than before, so that offsets alone would not tell.
    send(broker, own_topic, *numbers(10, first=100))
    strict = query.restarted()
    with pytest.raises(DataLoss, match="the topic was deleted and created again; the old one was read up to"):
        strict.batch()
    loose = query.restarted(failOnDataLoss="false")
    assert loose.batch() == numbers(10, first=100)
    assert loose.batch() == []


def test_a_running_query_notices_that_its_topic_is_gone(broker: Cluster, own_topic: str) -> None:
    query = Query(broker, subscribe=own_topic)
    send(broker, own_topic, *numbers(3))
    query.batch()
    broker.delete_topic(own_topic)
    with pytest.raises(DataLoss, match=r"the partition is gone, .*; it was read up to offset 3"):
        # A running query looks what topics there are once a second.
        run_until_something_comes(query)


def test_a_query_whose_topic_is_gone_goes_on_if_it_may(broker: Cluster, own_topic: str) -> None:
    other = broker.topic()
    query = Query(broker, subscribe=f"{own_topic},{other}", failOnDataLoss="false")
    send(broker, own_topic, b"gone")
    send(broker, other, b"here")
    assert sorted(query.batch()) == [b"gone", b"here"]
    broker.delete_topic(own_topic)
    again = query.restarted()
    assert again.batch() == []
    send(broker, other, b"more")
    assert again.batch() == [b"more"]
    broker.topic(own_topic)
    send(broker, own_topic, b"back")
    assert run_until_something_comes(again) == [b"back"]


def test_a_log_that_became_shorter_is_lost_and_told(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    query = Query(broker, subscribe=topic)
    query.start = {topic: {"0": 15}}
    with pytest.raises(DataLoss, match="offset 15 was to be read next, and the log ends at 10"):
        query.batch()
    loose = query.restarted(failOnDataLoss="false")
    loose.start = {topic: {"0": 15}}
    assert loose.batch() == []
    send(broker, topic, b"new")
    assert loose.batch() == [b"new"]


def test_a_query_survives_its_broker(broker: Cluster, own_topic: str) -> None:
    query = Query(broker, subscribe=own_topic)
    send(broker, own_topic, *numbers(5))
    query.batch()
    broker.kill(1)
    broker.restart(1)
    send(broker, own_topic, *numbers(5, first=5))
    assert query.batch() == numbers(5, first=5)


# -------------------------------------------------------------------------------------------- mistakes


def test_a_topic_that_does_not_exist_is_named(broker: Cluster) -> None:
    with pytest.raises(MissingTopic, match="Topic 'nowhere' does not exist"):
        Query(broker, subscribe="nowhere").end()


def test_mistakes_are_told_when_spark_can_show_them(broker: Cluster) -> None:
    # Making the reader does not fail: Spark would hide that behind an error of its own.
    query = Query(broker, subscribe="clicks", endingOffsets="latest")
    with pytest.raises(BadOption, match="Option endingOffsets is for batch queries"):
        query.end()
    query = Query(broker, schema=StructType([StructField("price", IntegerType())]), subscribe="clicks")
    with pytest.raises(BadOption, match="There is no column 'price'"):
        query.reader.getDefaultReadLimit()


def test_a_checkpoint_of_something_else_is_refused(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic)
    query.start = {"logOffset": 7}
    with pytest.raises(BadCheckpoint, match="Check that the checkpoint is one of this query"):
        query.batch()


# -------------------------------------------------------------------------------------------- the group


def test_progress_is_committed_to_a_group_of_the_query(broker: Cluster, topic: str) -> None:
    query = Query(broker, subscribe=topic, groupIdPrefix="reports")
    send(broker, topic, *numbers(10))
    query.batch()
    assert query.start is not None
    group = f"reports-{query.start['@query']}"
    query.end()
    query.reader.stop()
    assert committed(broker, group) == {place_of((topic, 0)): 10}
    send(broker, topic, *numbers(5))
    again = query.restarted()
    again.batch()
    # The next batch is planned from where the last one is done.
    again.end()
    again.reader.stop()
    assert committed(broker, group) == {place_of((topic, 0)): 15}


def test_a_query_that_ends_by_itself_has_committed_all(broker: Cluster, topic: str) -> None:
    group = f"group of {topic}"
    query = Query(broker, None, subscribe=topic, **{"kafka.group.id": group})
    for count in (10, 20):
        send(broker, topic, *numbers(10))
        query = query.restarted()
        query.reader.prepareForTriggerAvailableNow()
        while query.batch():
            pass
        # Spark may kill the process now, without a word.
        assert committed(broker, group) == {place_of((topic, 0)): count}


def test_only_what_is_processed_is_committed(broker: Cluster, topic: str) -> None:
    query = Query(broker, None, subscribe=topic, **{"kafka.group.id": f"group of {topic}"})
    send(broker, topic, *numbers(10))
    end = query.end()
    query.read(query.initial(), end)
    query.reader.stop()
    assert committed(broker, f"group of {topic}") == {}
    query.reader.commit(end)
    query.reader.stop()
    assert committed(broker, f"group of {topic}") == {place_of((topic, 0)): 10}


def test_a_group_that_has_members_does_not_hold_a_query_up(
    broker: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, topic, *numbers(10))
    group = f"busy group of {topic}"
    with connect_sync(broker.bootstrap_servers) as client:
        member = client.group_consumer([topic], group_id=group, auto_offset_reset="earliest")
        while not member.poll(timeout_ms=1_000):
            pass
        query = Query(broker, None, subscribe=topic, **{"kafka.group.id": group})
        assert query.batch() == numbers(10)
        query.end()
        query.reader.stop()
        member.close()
    assert "The progress of the query could not be committed to its group" in caplog.text


def test_every_query_has_a_group_of_its_own(broker: Cluster, topic: str) -> None:
    first, second = (Query(broker, subscribe=topic).end()["@query"] for _ in range(2))
    assert first != second
