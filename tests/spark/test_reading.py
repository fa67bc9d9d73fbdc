"""What a task reads of a real broker: ranges to their ends, whatever is in them and whatever happens."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from moldau.client import connect_sync
from moldau.client.offsets import place_of
from moldau.spark.batch_source import plan_tasks
from moldau.spark.columns import arrow_schema, source_schema
from moldau.spark.connections import shared_client
from moldau.spark.consumers import borrowed_consumer
from moldau.spark.errors import BadBound, DataLoss, MissingTopic, NothingCame
from moldau.spark.options import ReadOptions, Use
from moldau.spark.plan.ranges import OffsetRange
from moldau.spark.reading import Task, fetch_settings, read
from moldau.spark.topics import Topics
from moldau.testing import Cluster
from moldau.wire.records.batch import encode_batch, encode_end_transaction_marker
from moldau.wire.records.record import Record

SCHEMA = arrow_schema(source_schema(with_headers=True))


@pytest.fixture(scope="module")
def own_broker(broker: Cluster) -> Iterator[Cluster]:
    """The broker of all tests, healed for whoever comes next."""
    yield broker
    broker.heal()


def options(broker: Cluster, **more: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **more}
    return ReadOptions.parse(given, Use.BATCH)


def send(broker: Cluster, topic: str, *values: bytes, partition: int = 0) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def rows(tasks: list[Task], given: ReadOptions) -> list[tuple[int, int, bytes]]:
    return [
        (row["partition"], row["offset"], row["value"])
        for task in tasks
        for batch in read(task, given, SCHEMA)
        for row in batch.to_pylist()
    ]


def read_all(given: ReadOptions) -> list[tuple[int, int, bytes]]:
    return rows(plan_tasks(given), given)


def test_a_range_is_read_to_its_end_and_not_beyond(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(100))
    given = options(broker, subscribe=topic)
    task = Task((OffsetRange(place_of((topic, 0)), 10, 60),), {})
    assert [offset for _, offset, _ in rows([task], given)] == list(range(10, 60))


def test_a_task_reads_several_partitions(broker: Cluster) -> None:
    topic = broker.topic(partitions=3)
    for partition in range(3):
        send(broker, topic, *numbers(10), partition=partition)
    given = options(broker, subscribe=topic)
    (task,) = plan_tasks(given)
    assert len(task.ranges) == 3
    found = rows([task], given)
    assert sorted(found) == [(p, n, b"%d" % n) for p in range(3) for n in range(10)]
    for partition in range(3):
        assert [offset for p, offset, _ in found if p == partition] == list(range(10))


def test_one_task_after_the_other_reads_with_the_same_consumer(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(100))
    given = options(broker, subscribe=topic, **{"kafka.client.id": topic})
    client = shared_client(given.bootstrap_servers, given.settings)
    ranges = [OffsetRange(place_of((topic, 0)), start, start + 10) for start in range(0, 100, 10)]
    used: list[int] = []
    for number, each in enumerate(ranges):
        assert [value for _, _, value in rows([Task((each,), {})], given)] == numbers(10, first=10 * number)
        with borrowed_consumer(client, fetch_settings(given)) as consumer:
            used.append(id(consumer))
    assert len(set(used)) == 1


def test_a_consumer_whose_task_stops_early_is_not_used_again(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(100))
    given = options(broker, subscribe=topic, **{"kafka.client.id": topic})
    client = shared_client(given.bootstrap_servers, given.settings)
    with borrowed_consumer(client, fetch_settings(given)) as first:
        pass
    # There is less than it wants, so that it waits for more when it is stopped.
    batches = read(Task((OffsetRange(place_of((topic, 0)), 0, 1_000),), {}), given, SCHEMA)
    next(batches)
    del batches
    with borrowed_consumer(client, fetch_settings(given)) as second:
        assert second is not first
        assert second.assignment() == ()


def test_an_empty_topic_makes_no_task(broker: Cluster, topic: str) -> None:
    assert plan_tasks(options(broker, subscribe=topic)) == []


def test_tasks_of_a_size_can_be_asked_for(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(100))
    for more, count in (({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "10"}, 10)):
        given = options(broker, subscribe=topic, **more)
        tasks = plan_tasks(given)
        assert len(tasks) == count
        assert [value for _, _, value in rows(tasks, given)] == numbers(100)


def test_bounds_by_offset(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(20))
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 5}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 12}}}}',
    }
    assert [offset for _, offset, _ in read_all(options(broker, subscribe=topic, **bounds))] == list(
        range(5, 12)
    )


def test_bounds_by_time(broker: Cluster, topic: str) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp=1_000_000 + 1_000 * number)
    given = options(broker, subscribe=topic, startingTimestamp="1003000", endingTimestamp="1006500")
    assert [value for _, _, value in read_all(given)] == [b"3", b"4", b"5", b"6"]
    given = options(broker, subscribe=topic, endingTimestamp="99999999")
    assert len(read_all(given)) == 10
    with pytest.raises(BadBound, match=r"No record of .* has timestamp 99999999 or a later one"):
        read_all(options(broker, subscribe=topic, startingTimestamp="99999999"))
    fallback = {"startingTimestamp": "99999999", "startingOffsetsByTimestampStrategy": "latest"}
    assert read_all(options(broker, subscribe=topic, **fallback)) == []


def test_patterns_find_topics_by_their_whole_names(broker: Cluster) -> None:
    stem = broker.topic()
    first, second, other = f"{stem}.one", f"{stem}.two", f"x{stem}.one"
    for name in (first, second, other):
        send(broker, broker.topic(name), name.encode())
    found = read_all(options(broker, subscribePattern=rf"{stem}\..*"))
    assert sorted(value for _, _, value in found) == [first.encode(), second.encode()]
    # The broker's own topics are nobody's business.
    places = Topics(options(broker, subscribePattern=".*")).find().places
    assert all(not place.topic.startswith("__") for place in places)


def test_partitions_can_be_assigned(broker: Cluster) -> None:
    topic = broker.topic(partitions=3)
    for partition in range(3):
        send(broker, topic, b"%d" % partition, partition=partition)
    found = read_all(options(broker, assign=f'{{"{topic}": [0, 2]}}'))
    assert sorted(value for _, _, value in found) == [b"0", b"2"]


def test_what_does_not_exist_is_named(broker: Cluster, topic: str) -> None:
    with pytest.raises(MissingTopic, match="Topic 'nowhere' does not exist at "):
        plan_tasks(options(broker, subscribe=f"{topic},nowhere"))
    with pytest.raises(MissingTopic, match=f"Option assign names partition {topic}-7"):
        plan_tasks(options(broker, assign=f'{{"{topic}": [0, 7]}}'))


def test_offsets_must_be_given_for_all_partitions_that_are_read(broker: Cluster) -> None:
    topic = broker.topic(partitions=2)
    lacking = {"startingOffsets": f'{{"{topic}": {{"0": 5}}}}'}
    with pytest.raises(BadBound, match=f"Option startingOffsets has no entry for {topic}-1"):
        plan_tasks(options(broker, subscribe=topic, **lacking))
    extra = {"endingOffsets": f'{{"{topic}": {{"0": 5, "1": 5, "2": 5}}}}'}
    with pytest.raises(BadBound, match=f"Option endingOffsets names {topic}-2"):
        plan_tasks(options(broker, subscribe=topic, **extra))


def test_a_range_that_ends_before_it_begins_is_refused(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(10))
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 5}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 2}}}}',
    }
    with pytest.raises(BadBound, match="is to be read from offset 5 to 2"):
        plan_tasks(options(broker, subscribe=topic, **bounds))


# ------------------------------------------------------------------------------------------------ losses


def delete_before(broker: Cluster, topic: str, offset: int) -> None:
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.delete_records({(topic, 0): offset})


def test_records_that_were_deleted_before_the_query_are_a_loss(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(20))
    delete_before(broker, topic, 8)
    start = {"startingOffsets": f'{{"{topic}": {{"0": 5}}}}'}
    with pytest.raises(DataLoss, match=r"offset 5 was asked for, and the log begins at 8.*failOnDataLoss"):
        plan_tasks(options(broker, subscribe=topic, **start))
    given = options(broker, subscribe=topic, failOnDataLoss="false", **start)
    assert [offset for _, offset, _ in read_all(given)] == list(range(8, 20))


def test_records_that_are_deleted_between_plan_and_reading_are_a_loss(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(20))
    strict = options(broker, subscribe=topic)
    loose = options(broker, subscribe=topic, failOnDataLoss="false")
    tasks = plan_tasks(strict)
    delete_before(broker, topic, 8)
    with pytest.raises(DataLoss, match="offsets 0 to 19 were to be read, and the log begins at offset 8"):
        rows(tasks, strict)
    assert [offset for _, offset, _ in rows(tasks, loose)] == list(range(8, 20))
    delete_before(broker, topic, 20)
    assert rows(tasks, loose) == []


def test_a_log_that_ends_too_early_is_a_loss(broker: Cluster, topic: str) -> None:
    send(broker, topic, *numbers(20))
    task = Task((OffsetRange(place_of((topic, 0)), 30, 40),), {})
    with pytest.raises(DataLoss, match="offsets 30 to 39 were to be read, and the log ends before offset 30"):
        rows([task], options(broker, subscribe=topic))
    assert rows([task], options(broker, subscribe=topic, failOnDataLoss="false")) == []


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(broker: Cluster) -> None:
    topic = broker.topic()
    send(broker, topic, *numbers(10))
    strict = options(broker, subscribe=topic)
    loose = options(broker, subscribe=topic, failOnDataLoss="false")
    tasks = plan_tasks(strict)
    broker.delete_topic(topic)
    broker.topic(topic)
    send(broker, topic, *numbers(10, first=100))
    with pytest.raises(DataLoss, match="the topic was deleted and created again"):
        rows(tasks, strict)
    assert rows(tasks, loose) == []


def test_a_topic_that_is_gone_is_a_loss(broker: Cluster) -> None:
    topic = broker.topic()
    send(broker, topic, *numbers(10))
    strict = options(broker, subscribe=topic)
    tasks = plan_tasks(strict)
    broker.delete_topic(topic)
    with pytest.raises(DataLoss, match="the topic is gone"):
        rows(tasks, strict)
    assert rows(tasks, options(broker, subscribe=topic, failOnDataLoss="false")) == []


# ------------------------------------------------------------------------- a broker that comes and goes


def test_a_task_waits_for_a_broker_that_comes_back(own_broker: Cluster) -> None:
    topic = own_broker.topic()
    send(own_broker, topic, *numbers(50))
    given = options(own_broker, subscribe=topic)
    tasks = plan_tasks(given)
    own_broker.kill(1)
    found: list[tuple[int, int, bytes]] = []
    reading = threading.Thread(target=lambda: found.extend(rows(tasks, given)))
    reading.start()
    # Long enough for some failed attempts; however many there are, the outcome is the same.
    time.sleep(1)
    assert found == []
    own_broker.restart(1)
    reading.join(60)
    assert [value for _, _, value in found] == numbers(50)


def test_a_task_gives_up_in_the_end_and_says_why(own_broker: Cluster) -> None:
    topic = own_broker.topic()
    send(own_broker, topic, *numbers(5))
    given = options(own_broker, subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": "1500"})
    tasks = plan_tasks(given)
    own_broker.kill(1)
    with pytest.raises(NothingCame) as gave_up:
        rows(tasks, given)
    own_broker.heal()
    assert f"No record of {topic}-0 [0, 5) came within 1500 ms" in str(gave_up.value)
    assert f"Check that the brokers at {own_broker.bootstrap_servers} run" in str(gave_up.value)


# ---------------------------------------------------------------------------- logs with more than records


def data(*offsets: int, producer: int = -1, sequence: int = 0, is_transactional: bool = False) -> bytes:
    return encode_batch(
        [Record(offset, 1_700_000_000_000, b"k", b"%d" % offset) for offset in offsets],
        base_offset=offsets[0],
        leader_epoch=0,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence if producer >= 0 else -1,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
    return encode_end_transaction_marker(
        is_commit=is_commit,
        coordinator_epoch=0,
        timestamp=1_700_000_000_000,
        producer_id=producer,
        producer_epoch=0,
        base_offset=offset,
        leader_epoch=0,
    )


LOGS = {
    "an aborted transaction at the end": (
        [data(0, 1, 2), data(3, 4, producer=7, is_transactional=True), marker(5, 7, is_commit=False)],
        [0, 1, 2],
        6,
    ),
    "a committed transaction at the end": (
        [data(0), data(1, 2, producer=7, is_transactional=True), marker(3, 7, is_commit=True)],
        [0, 1, 2],
        4,
    ),
    "an aborted transaction among others": (
        [
            data(0, 1, producer=7, is_transactional=True),
            data(2, producer=8, is_transactional=True),
            marker(3, 7, is_commit=False),
            data(4),
            marker(5, 8, is_commit=True),
            data(6),
        ],
        [2, 4, 6],
        7,
    ),
    "nothing but markers": ([marker(0, 7, is_commit=False), marker(1, 8, is_commit=True)], [], 2),
    # An open transaction hides what is behind it, so that reading ends before.
    "an open transaction": ([data(0, 1), data(2, producer=7, is_transactional=True), data(3)], [0, 1], 2),
    "gaps within and between batches": ([data(0, 4), data(10, 12), data(20)], [0, 4, 10, 12, 20], 21),
}


@pytest.fixture(scope="module")
def strange_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with logs that hold what our client cannot write: its files are written while it is down."""
    home = tmp_path_factory.mktemp("strange")
    with moldau.cluster(folder=home) as broker:
        names = {what: broker.topic(what.replace(" ", "-")) for what in LOGS}
        broker.kill(1)
        for what, (batches, _, _) in LOGS.items():
            (segment,) = home.rglob(f"{names[what]}-0/{0:020}.log")
            Path(segment).write_bytes(b"".join(batches))
        broker.restart(1)
        yield broker


@pytest.mark.parametrize("what", LOGS)
def test_strange_logs_are_read_to_their_ends(strange_broker: Cluster, what: str) -> None:
    _, visible, end = LOGS[what]
    topic = what.replace(" ", "-")
    given = options(strange_broker, subscribe=topic)
    tasks = plan_tasks(given)
    assert sum(each.size for task in tasks for each in task.ranges) == end
    assert [offset for _, offset, _ in rows(tasks, given)] == visible


@pytest.mark.parametrize("what", LOGS)
def test_every_range_of_a_strange_log_ends(strange_broker: Cluster, what: str) -> None:
    _, visible, end = LOGS[what]
    place = place_of((what.replace(" ", "-"), 0))
    given = options(strange_broker, subscribe=place.topic, **{"kafkaConsumer.pollTimeoutMs": "20000"})
    for start in range(end):
        for stop in range(start + 1, end + 1):
            found = rows([Task((OffsetRange(place, start, stop),), {})], given)
            assert [offset for _, offset, _ in found] == [each for each in visible if start <= each < stop]


def test_open_and_aborted_transactions_are_read_where_that_is_asked_for(strange_broker: Cluster) -> None:
    loose = {"kafka.isolation.level": "read_uncommitted"}
    given = options(strange_broker, subscribe="an-open-transaction", **loose)
    assert [offset for _, offset, _ in read_all(given)] == [0, 1, 2, 3]
    given = options(strange_broker, subscribe="an-aborted-transaction-at-the-end", **loose)
    assert [offset for _, offset, _ in read_all(given)] == [0, 1, 2, 3, 4]
