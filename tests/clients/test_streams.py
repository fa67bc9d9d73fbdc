"""Kafka Streams counts words on the broker: a group, topics of its own, and a state that it finds again."""

from __future__ import annotations

import struct
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clients.drivers import REFERENCE, make_driver
from clients.drivers.driver import Driver, NewRecord, ToolchainMissing
from clients.foreign.programs import streams_command
from clients.rough_broker import RoughBroker

# Every wait has a limit of its own; all together they may take longer than one test does elsewhere.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2
WAIT_S = 120
STOP_TIMEOUT_S = 60
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}

LINES = ["the river runs to the sea", "the sea does not fill", "rivers run and run", "to the river again"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RoughBroker]:
    with RoughBroker(tmp_path, SETTINGS) as running:
        yield running
        running.check_health()


@contextmanager
def word_count(broker: RoughBroker, application: str, state: Path) -> Iterator[None]:
    """Kafka Streams, counting meanwhile."""
    try:
        command = streams_command("WordCount")
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    state.mkdir()
    with open(state / "errors", "w+") as errors:
        process = subprocess.Popen(
            [*command, broker.address, application, "lines", "counts", str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            yield
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(STOP_TIMEOUT_S) == 0
        except BaseException as failed:
            errors.seek(0)
            failed.add_note(f"Kafka Streams said: {errors.read()[-4000:]}\n{broker.log()[-4000:]}")
            raise
        finally:
            process.kill()
            process.wait()


def write(driver: Driver, lines: list[str]) -> None:
    records = [NewRecord(line.encode(), partition=number % PARTITIONS) for number, line in enumerate(lines)]
    driver.produce("lines", records)


def counted(driver: Driver) -> dict[str, int]:
    """The last count of each word."""
    found: dict[str, int] = {}
    for partition in range(PARTITIONS):
        end = driver.list_offsets("counts", partition=partition).latest
        for record in driver.consume("counts", partition=partition, offset=0, count=end, timeout_ms=30_000):
            assert record.key is not None
            assert record.value is not None
            (found[record.key.decode()],) = struct.unpack(">q", record.value)
    return found


def until_equal(look: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"still {found}, not {expected}"
        time.sleep(0.1)


def kept(driver: Driver, topic: str) -> int:
    """How many records a topic has."""
    ranges = [driver.list_offsets(topic, partition=partition) for partition in range(PARTITIONS)]
    return sum(found.latest - found.earliest for found in ranges)


def test_words_are_counted_and_counts_go_on_after_the_state_is_lost(
    broker: RoughBroker, tmp_path: Path
) -> None:
    application = f"words-{uuid.uuid4().hex[:8]}"
    driver = make_driver(REFERENCE, broker.address)
    for topic in ("lines", "counts"):
        driver.create_topic(topic, partitions=PARTITIONS)
    write(driver, LINES)
    words = Counter(" ".join(LINES).split())

    with word_count(broker, application, tmp_path / "first"):
        until_equal(lambda: counted(driver), words)
        # All words have gone through this topic, and are deleted from it when they are counted.
        until_equal(lambda: kept(driver, f"{application}-counts-repartition"), 0)
    # The cache of the store may spare the changelog a count that is followed by another.
    assert len(words) <= kept(driver, f"{application}-counts-changelog") <= words.total()
    driver.close()

    broker.kill()
    broker.start()
    # A new one, because librdkafka does not look again for leaders to list offsets from.
    driver = make_driver(REFERENCE, broker.address)
    write(driver, LINES[:3])
    with word_count(broker, application, tmp_path / "second"):
        until_equal(lambda: counted(driver), words + Counter(" ".join(LINES[:3]).split()))
    driver.close()
