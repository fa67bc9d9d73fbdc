"""The harness at work on Moldau alone, with little to do: what it counts, and what it refuses to."""

from __future__ import annotations

from collections.abc import Iterator

import kafka_jars
import pytest

pytest.importorskip("confluent_kafka")

from clients.broker_process import PRODUCTS, BrokerProcess
from compare import rdkafka
from compare.rdkafka_batches import BatchProducer
from compare.readback import check_topic
from compare.rows import IN_MEMORY, ON_DISK, ROWS
from compare.servers import CONTENDERS, MOLDAU
from compare.turns import compare, turns_total

from moldau.bench.payloads import WrongPayload, batches
from moldau.bench.pipeline import ACKS_ALL, Refused, drive, produce_reel, produced_offsets, read_back
from moldau.bench.site import Site
from moldau.bench.workloads import TINY, WORKLOADS, Workload
from moldau.client import connect_sync


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    broker = BrokerProcess(PRODUCTS["moldau"], tmp_path_factory.mktemp("broker"))
    yield Site(broker.address, server_pid=broker.pid)
    broker.stop()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_is_done_and_leaves_nothing_behind(site: Site, workload: Workload) -> None:
    done = workload.run(site, TINY)
    assert done.messages > 0
    assert done.seconds > 0
    assert done.client_cpu_s > 0
    # The kernel counts what a process uses when it stops running, which may be after so short a round.
    assert done.server_cpu_s is not None
    assert done.server_cpu_s >= 0
    assert all(reading.of(done) > 0 for reading in workload.readings)
    with connect_sync(site.bootstrap_servers) as client:
        assert client.admin.list_topics() == {}


def test_latencies_are_counted_for_every_message(site: Site) -> None:
    (latency,) = [workload for workload in WORKLOADS if workload.name == "latency"]
    done = latency.run(site, TINY)
    assert len(done.latencies_s) == 1_000 * TINY.latency_seconds
    assert min(done.latencies_s) > 0


def test_offsets_tell_what_was_written(site: Site) -> None:
    sent = batches(value_bytes=100, records_per_batch=2)
    with site.topic() as topic:
        reel = produce_reel(topic.name, sent, acks=ACKS_ALL)
        work = [(topic.leaders[0], reel)]
        driven = drive(work, site.meter(), requests_each=20, in_flight_max=3, timeout_s=30)
        assert produced_offsets(driven.replies[0], reel) == list(range(0, 40, 2))
        read_back(topic.leaders[0], topic.name, sent, counts={0: 20})


def test_other_bytes_than_were_sent_are_noticed(site: Site) -> None:
    sent, others = (batches(value_bytes=size, records_per_batch=2) for size in (100, 101))
    with site.topic() as topic:
        work = [(topic.leaders[0], produce_reel(topic.name, others, acks=ACKS_ALL))]
        drive(work, site.meter(), requests_each=1, in_flight_max=1, timeout_s=30)
        with pytest.raises(WrongPayload):
            read_back(topic.leaders[0], topic.name, sent, counts={0: 1})


def test_a_batch_too_few_or_too_many_is_noticed(site: Site) -> None:
    sent = batches(value_bytes=100, records_per_batch=2)
    with site.topic() as topic:
        work = [(topic.leaders[0], produce_reel(topic.name, sent, acks=ACKS_ALL))]
        drive(work, site.meter(), requests_each=3, in_flight_max=3, timeout_s=30)
        for count in (2, 4):
            with pytest.raises(WrongPayload, match="batches are there"):
                read_back(topic.leaders[0], topic.name, sent, counts={0: count})


def test_an_error_of_the_broker_is_no_result(site: Site) -> None:
    sent = batches(value_bytes=100, records_per_batch=1)
    with site.topic() as topic:
        reel = produce_reel("no-such-topic", sent, acks=ACKS_ALL)
        driven = drive(
            [(topic.leaders[0], reel)], site.meter(), requests_each=1, in_flight_max=1, timeout_s=30
        )
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            produced_offsets(driven.replies[0], reel)


def test_records_of_librdkafka_are_counted_and_looked_at(site: Site) -> None:
    done = rdkafka.produce(site, TINY, value_bytes=100, acks="all", producers=4)
    assert done.messages == TINY.records - 4 * 100
    with site.topic() as topic:
        writer = BatchProducer(site.bootstrap_servers, topic.name, value_bytes=100)
        writer.produce(range(30), timeout_s=30)
        writer.flush(timeout_s=30)
        writer.close()
        check_topic(topic, total=30, value_bytes=100)
        for total, value_bytes in ((29, 100), (31, 100), (30, 99)):
            with pytest.raises(WrongPayload):
                check_topic(topic, total=total, value_bytes=value_bytes)


@pytest.mark.slow
def test_a_comparison_has_all_rounds_of_everybody_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> str:
        raise kafka_jars.Unavailable("java is not installed")

    monkeypatch.setattr(kafka_jars, "find_java", no_java)
    wanted = ("produce-1024-acks-all-x1", "batches-of-64K", "tail-100", "history-100", "connections-1",
              "partitions-10", "memory-loaded")  # fmt: skip
    rows = [row for row in ROWS if row.name in wanted]
    told: list[str] = []
    results = compare(rows, TINY, rounds=2, warm_up=TINY, facts={}, tell=told.append)
    assert results.failures == []
    assert results.missing == [f"{CONTENDERS['kafka'].name}: java is not installed"]
    assert 0 < len(told) <= turns_total(rows, rounds=2, is_warming_up=True)
    rate = results.figure("produce-1024-acks-all-x1", ON_DISK.name, "rate")
    assert rate is not None
    assert set(rate.values) == {ON_DISK.ours.name, ON_DISK.limit.name}
    assert all(len(values) == 2 and all(values) for values in rate.values.values())
    memory = results.figure("memory-loaded", IN_MEMORY.name, "resident memory")
    assert memory is not None
    assert 10 < (memory.values[IN_MEMORY.ours.name][0] or 0) < 1_000
    assert {figure.row for figure in results.figures} == set(wanted)


def test_a_turn_that_fails_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise WrongPayload("a byte is wrong")

    monkeypatch.setattr(rdkafka, "check_topic", broken)
    rows = [row for row in ROWS if row.name in ("produce-100-acks-1-x1", "memory-loaded")]
    products = {"moldau": MOLDAU}
    results = compare(rows, TINY, rounds=1, warm_up=None, facts={}, tell=lambda what: None, products=products)
    assert results.failures == ["produce-100-acks-1-x1, moldau-replicated: WrongPayload: a byte is wrong"]
    memory = results.figure("memory-loaded", IN_MEMORY.name, "resident memory")
    assert memory is not None
    assert memory.spread_of(IN_MEMORY.ours.name) is not None
