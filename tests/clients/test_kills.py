"""A broker that is killed, told to stop, or failed by its disk: what it acknowledged is there afterwards."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from clients.raw_client import Closed, RawClient, batch_of, wait_until
from clients.rough_broker import RoughBroker
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.log import checkpoints
from moldau.model.errors import ErrorCode
from moldau.model.ids import Uuid
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

MIB = 2**20
SEED = 20
KILLS = 6
PARTITIONS = 3
CODECS = ("none", "gzip", "lz4", "zstd")
TOPIC = "sound"
TIMEOUT_S = 60


# ----------------------------------------------------------------------------- a load


class Load:
    """Idempotent producers of librdkafka that write numbered records, one topic and codec each."""

    def __init__(self, broker: RoughBroker) -> None:
        self.acknowledged = 0
        self._address = broker.address
        self._failures: list[KafkaError] = []
        self._is_over = threading.Event()
        self._is_given_up = False
        self._sent: dict[tuple[str, int], int] = defaultdict(int)
        with broker.connect() as client:
            for codec in CODECS:
                assert client.create_topic(codec, partitions=PARTITIONS) == ErrorCode.NONE
        self._threads = [threading.Thread(target=self._produce, args=(codec,)) for codec in CODECS]
        for thread in self._threads:
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        goal = self.acknowledged + count
        wait_until(lambda: self.acknowledged >= goal or bool(self._failures), "records come in", TIMEOUT_S)
        assert not self._failures, self._failures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_given_up = True
        self._stop()

    def finish(self) -> None:
        """Send no more, and wait until all is acknowledged that was sent."""
        self._stop()
        assert not self._failures, self._failures
        assert self.acknowledged == sum(self._sent.values())

    def _stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Every record is there once, and in its place."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "never joined",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                "log_level": 2,
            }
        )
        places = [TopicPartition(codec, number, 0) for codec in CODECS for number in range(PARTITIONS)]
        consumer.assign(places)
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        ended = 0
        deadline = time.monotonic() + TIMEOUT_S
        while ended < len(places):
            assert time.monotonic() < deadline, "the records cannot be read"
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    found[_place(message)].append(int(message.value() or b""))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
        consumer.close()
        for place, count in self._sent.items():
            assert found[place] == list(range(count)), place

    def _produce(self, codec: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "enable.idempotence": True,
                "acks": "all",
                "compression.codec": codec,
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "delivery.timeout.ms": TIMEOUT_S * 1000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._is_over.is_set():
            place = (codec, number % PARTITIONS)
            number += 1
            try:
                producer.produce(codec, b"%d" % self._sent[place], partition=place[1], on_delivery=self._told)
                self._sent[place] += 1
            except BufferError:
                pass
            # A pause now and then makes batches of all sizes, and leaves the processor to others.
            producer.poll(0.005 if number % 20 == 0 else 0)
        while producer.flush(0.1) and not self._is_given_up:
            pass
        # Whoever has given up does not wait for what may never come.
        producer.purge()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(error)


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return topic, partition


# ----------------------------------------------------------------------------- kills


@pytest.mark.slow
def test_kills_under_load_lose_nothing_double_nothing_and_keep_the_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with RoughBroker(tmp_path) as broker:
        with Load(broker) as load:
            for number in range(KILLS):
                load.wait_for_more(chance.randrange(1, 3_000))
                broker.kill()
                if number % 2:
                    # A start is a bad moment too.
                    broker.launch()
                    time.sleep(chance.uniform(0, 1.2))
                    broker.kill()
                broker.start()
            load.finish()
        load.check()
        broker.check_health()


class TopicStorm:
    """Topics are created and deleted without end; remembers what was acknowledged."""

    def __init__(self, broker: RoughBroker, name: str, seed: int) -> None:
        self.created: dict[str, Uuid] = {}
        self.deleted: set[str] = set()
        self.acknowledged = 0
        self.failures: list[str] = []
        self._broker = broker
        self._name = name
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Change nothing any more."""
        self._is_over.set()
        self._thread.join()
        assert not self.failures, self.failures

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                with self._broker.connect(self._name) as client:
                    while not self._is_over.is_set():
                        if self.created and self._chance.random() < 0.45:
                            self._delete(client, self._chance.choice(list(self.created)))
                        else:
                            number += 1
                            self._create(client, f"{self._name}-{number}")
            except (Closed, ConnectionRefusedError):
                # What was under way may have happened or not, and its name is not used again.
                time.sleep(0.02)

    def _create(self, client: RawClient, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        response = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0]
        if response.error_code == ErrorCode.NONE:
            self.created[name] = response.topic_id
            self.acknowledged += 1
        else:
            self._refused(f"{name} is not created", response.error_code)

    def _delete(self, client: RawClient, name: str) -> None:
        topic_id = self.created.pop(name)
        response = client.ask(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5, DeleteTopicsResponse
        ).responses[0]
        if response.error_code == ErrorCode.NONE:
            self.deleted.add(name)
            self.acknowledged += 1
        else:
            self.created[name] = topic_id
            self._refused(f"{name} is not deleted", response.error_code)

    def _refused(self, what: str, code: int) -> None:
        # A controller that has just started may still be on its way.
        if ErrorCode(code) not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            self.failures.append(f"{what}: {ErrorCode(code).name}")


@pytest.mark.slow
def test_kills_in_a_storm_of_topics_keep_what_was_created_and_bring_back_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with RoughBroker(tmp_path) as broker:
        storms = [TopicStorm(broker, f"storm-{number}", seed=number) for number in range(2)]

        def acknowledged() -> int:
            return sum(storm.acknowledged for storm in storms)

        def has_reached(goal: int) -> bool:
            return acknowledged() >= goal

        try:
            for _ in range(KILLS):
                goal = acknowledged() + chance.randrange(1, 80)
                wait_until(
                    partial(lambda goal: acknowledged() >= goal, goal), "topics come and go", TIMEOUT_S
                )
                broker.kill()
                broker.start()
        finally:
            for storm in storms:
                storm.finish()
        with broker.connect() as client:
            told = client.ask(MetadataRequest(topics=None), 12, MetadataResponse).topics
            topics = {topic.name: topic for topic in told}
            for storm in storms:
                for name, topic_id in storm.created.items():
                    assert topics[name].topic_id == topic_id, name
                    assert [each.leader_id for each in topics[name].partitions] == [1, 1], name
                    assert client.produce(name, batch_of(b"value")).error_code == ErrorCode.NONE
                assert not storm.deleted & topics.keys()

        expected = {f"{name}-{number}" for name in topics for number in range(2)}

        def others() -> list[str]:
            names = sorted(path.name for path in broker.data.iterdir() if path.name.startswith("storm-"))
            assert expected <= set(names), expected - set(names)
            # What a kill has cut off from its deletion is set aside, and never taken for a topic again.
            return [name for name in names if name not in expected and not name.endswith("-stray")]

        wait_until(lambda: not others(), lambda: f"deleted files are gone, unlike {others()}")
        broker.check_health()


# ----------------------------------------------------------------------------- told to stop


def test_a_broker_that_is_told_to_stop_under_load_loses_nothing_and_need_not_recover(tmp_path: Path) -> None:
    with RoughBroker(tmp_path) as broker:
        clean_shutdown = broker.data / checkpoints.CLEAN_SHUTDOWN
        with Load(broker) as load:
            for _ in range(2):
                load.wait_for_more(500)
                assert broker.stop() == 0
                assert "all logs are closed" in broker.log()
                # The next start believes it, and the one after that must not.
                assert clean_shutdown.exists()
                broker.start()
                assert not clean_shutdown.exists()
            load.finish()
        load.check()
        broker.check_health()


# ----------------------------------------------------------------------------- disks


FAULTS_C = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int exists(const char *suffix) {
    char path[4096];
    const char *stem = getenv("MOLDAU_TEST_FAULTS");
    if (stem == NULL) return 0;
    snprintf(path, sizeof path, "%s%s", stem, suffix);
    return access(path, F_OK) == 0;
}

static int faulty(const char *name, int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    while (exists(".hang")) usleep(10000);
    if (exists(".eio")) { errno = EIO; return -1; }
    return real(fd);
}

int fsync(int fd) { return faulty("fsync", fd); }
int fdatasync(int fd) { return faulty("fdatasync", fd); }
int syncfs(int fd) { return faulty("syncfs", fd); }
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that fails flushes, or lets them hang, while there is a file that says so."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.c").write_text(FAULTS_C)
    library = folder / "faults.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "faults.c"), "-ldl"], check=True
    )
    return library


def with_faults(folder: Path, library: Path) -> RoughBroker:
    environment = {"LD_PRELOAD": str(library), "MOLDAU_TEST_FAULTS": str(folder / "fault")}
    return RoughBroker(folder / "broker", environment=environment)


def write_until_refused(client: RawClient, payload: bytes = b"") -> tuple[list[bytes], ErrorCode | None]:
    """The values that were acknowledged, and the error of the first that was not; None if nobody answered."""
    acknowledged: list[bytes] = []
    while True:
        value = b"%d " % len(acknowledged) + payload
        try:
            code = ErrorCode(client.produce(TOPIC, batch_of(value)).error_code)
        except Closed:
            return acknowledged, None
        if code is not ErrorCode.NONE:
            return acknowledged, code
        acknowledged.append(value)


def check_kept(client: RawClient, acknowledged: list[bytes]) -> None:
    """All that was acknowledged is there, and at most one more, which was written and not acknowledged."""
    # What a restart has found is shown once it is surely on the disk.
    wait_until(lambda: len(client.values(TOPIC)) >= len(acknowledged), "the records are there")
    found = client.values(TOPIC)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


def test_after_a_failed_flush_nothing_is_acknowledged_and_nothing_that_was_is_lost(
    tmp_path: Path, faults: Path
) -> None:
    fault = tmp_path / "fault.eio"
    with with_faults(tmp_path, faults) as broker, broker.connect() as client:
        assert client.create_topic(TOPIC) == ErrorCode.NONE
        said_before = len(broker.log().splitlines())
        failing = threading.Timer(0.3, fault.touch)
        failing.start()
        acknowledged, code = write_until_refused(client)
        failing.join()
        assert len(acknowledged) > 10
        assert code is None or code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.exit_code() == 1
        said = broker.log().splitlines()[said_before:]
        assert len([line for line in said if os.strerror(5) in line]) == 1, said
        assert "Traceback" not in broker.log()
        fault.unlink()
        broker.start()
        with broker.connect() as reader:
            check_kept(reader, acknowledged)
        broker.check_health()


def test_a_second_signal_ends_a_broker_that_cannot_stop(tmp_path: Path, faults: Path) -> None:
    fault = tmp_path / "fault.hang"
    with with_faults(tmp_path, faults) as broker, broker.connect() as client:
        assert client.create_topic(TOPIC) == ErrorCode.NONE
        fault.touch()
        broker.send_signal(signal.SIGTERM)
        wait_until(lambda: '"stopping"' in broker.log(), "it is stopping")
        broker.send_signal(signal.SIGTERM)
        assert broker.exit_code() == 1
        assert "stopped at once" in broker.log().splitlines()[-1]
        fault.unlink()
        broker.start()
        broker.check_health()


@contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """A file system of its own; skipped where nothing can be mounted."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_broker_whose_disk_is_nearly_full_takes_no_records_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=160 * MIB) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(90 * MIB))
        with RoughBroker(tmp_path / "broker", data=disk / "data") as broker, broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
            acknowledged, code = write_until_refused(client, bytes(10_000))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.log().count("the disk is nearly full") == 1
            # Everything else goes on.
            assert client.values(TOPIC) == acknowledged
            assert client.create_topic("another") == ErrorCode.NONE
            ballast.unlink()
            wait_until(
                lambda: client.produce(TOPIC, batch_of(b"last")).error_code == ErrorCode.NONE, "there is room"
            )
            broker.kill()
            broker.start()
            with broker.connect() as reader:
                check_kept(reader, [*acknowledged, b"last"])
            broker.check_health()


def test_a_broker_whose_disk_is_full_to_the_last_byte_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=120 * MIB) as disk:
        ballast = disk / "ballast"
        with RoughBroker(tmp_path / "broker", data=disk / "data") as broker, broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
            filling = threading.Timer(0.3, partial(_fill, ballast))
            filling.start()
            acknowledged, code = write_until_refused(client, bytes(1_000))
            filling.join()
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert acknowledged
            if broker.is_running():
                broker.check_health()
                broker.kill()
            ballast.unlink()
            broker.start()
            with broker.connect() as reader:
                check_kept(reader, acknowledged)
                wait_until(
                    lambda: reader.produce(TOPIC, batch_of(b"more")).error_code == ErrorCode.NONE,
                    "it goes on",
                )
            broker.check_health()


def _fill(path: Path) -> None:
    """Take all the room that there is."""
    with open(path, "wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
