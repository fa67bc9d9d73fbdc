"""Clients that do not read, do not speak or vanish: whatever they hold is small, and nobody else notices."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from clients.raw_client import FETCH_VERSION, Closed, batch_of, fetch_request, wait_until
from clients.rough_broker import RoughBroker

from moldau.model.errors import ErrorCode
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MIB = 2**20
GROWTH_BYTES_MAX = 32 * MIB
TOPIC = "sound"
LARGE = "large"
LARGE_BATCHES = 24
IDLE_MS = 1_500
IDLE_CONNECTIONS = 10_000
IDLE_CONNECTION_BYTES_MAX = 40_000
# From linux/tcp.h; while it is on, a socket that is closed says nothing to its peer.
TCP_REPAIR = 19


@contextmanager
def files_allowed(count: int) -> Iterator[None]:
    """This process, and whatever it starts, may have so many files open; skipped where that is forbidden."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} files may be open, and {count} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def somebody_served(broker: RoughBroker) -> Iterator[Callable[[], None]]:
    """Somebody writes and reads all the time, and must not fail; gives how to wait for its next rounds."""
    rounds = 0
    failures: list[BaseException] = []
    is_over = threading.Event()

    def work() -> None:
        nonlocal rounds
        try:
            with broker.connect("bystander") as bystander:
                while not is_over.is_set():
                    placed = bystander.produce(TOPIC, batch_of(b"bystander %d" % rounds))
                    assert placed.error_code == ErrorCode.NONE
                    asked = fetch_request(TOPIC, offset=placed.base_offset)
                    fetched = bystander.ask(asked, FETCH_VERSION, FetchResponse)
                    assert fetched.responses[0].partitions[0].high_watermark > placed.base_offset
                    rounds += 1
        except (AssertionError, OSError, Closed) as failure:
            failures.append(failure)

    def is_served() -> None:
        before = rounds
        wait_until(lambda: bool(failures) or rounds >= before + 5, "others are served")
        assert not failures, failures

    thread = threading.Thread(target=work)
    thread.start()
    try:
        is_served()
        yield is_served
        is_served()
    finally:
        is_over.set()
        thread.join()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoughBroker]:
    """A broker that has much to tell."""
    with RoughBroker(tmp_path_factory.mktemp("patient")) as broker:
        with broker.connect() as client:
            for topic, partitions in ((TOPIC, 1), (LARGE, 1), ("wide", 300)):
                assert client.create_topic(topic, partitions=partitions) == ErrorCode.NONE
            for number in range(LARGE_BATCHES):
                placed = client.produce(LARGE, batch_of(bytes([number]) * 1_000_000))
                assert placed.error_code == ErrorCode.NONE
        yield broker


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoughBroker]:
    """A broker that does not bear silence for long."""
    settings = {"connections.max.idle.ms": str(IDLE_MS)}
    with RoughBroker(tmp_path_factory.mktemp("impatient"), settings) as broker:
        with broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
        yield broker


# ----------------------------------------------------------------------------- who does not read


def test_clients_that_ask_for_much_and_read_nothing_cost_little(broker: RoughBroker) -> None:
    with somebody_served(broker) as is_served, ExitStack() as stack:
        broker.forget_memory_peak()
        before = broker.memory_bytes()
        for _ in range(20):
            reader = stack.enter_context(broker.connect("slow reader", receive_bytes=4096))
            # Two gigabytes, with those of all others.
            reader.send(b"".join(reader.encode(fetch_request(LARGE), FETCH_VERSION) for _ in range(4)))
        is_served()
        assert broker.memory_bytes_peak() - before < GROWTH_BYTES_MAX
    broker.check_health()


def test_a_pipeline_is_not_answered_into_memory_while_nobody_reads(broker: RoughBroker) -> None:
    with somebody_served(broker) as is_served, broker.connect("slow reader", receive_bytes=4096) as reader:
        broker.forget_memory_peak()
        before = broker.memory_bytes()
        # They fit into one read, and their answers would take more than a hundred megabytes.
        request = reader.encode(MetadataRequest(topics=None), 12)
        reader.send(request * (200_000 // len(request)))
        is_served()
        assert broker.memory_bytes_peak() - before < GROWTH_BYTES_MAX
    broker.check_health()


def test_a_client_that_reads_late_gets_all_that_it_has_asked_for(broker: RoughBroker) -> None:
    with broker.connect("late reader", receive_bytes=4096) as reader:
        count = 400
        reader.send(b"".join(reader.encode(MetadataRequest(topics=None), 12) for _ in range(count)))
        with somebody_served(broker):
            pass
        topics = {tuple(each.name for each in reader.read(MetadataResponse).topics) for _ in range(count)}
        assert len(topics) == 1
        assert reader.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE
    broker.check_health()


# ----------------------------------------------------------------------------- who does not speak


@pytest.mark.slow
def test_ten_thousand_idle_connections_are_borne_and_forgotten(tmp_path: Path) -> None:
    with files_allowed(IDLE_CONNECTIONS + 1_000), RoughBroker(tmp_path) as broker, ExitStack() as stack:
        with broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
        host, _, port = broker.address.rpartition(":")
        # Everything that comes with the first clients is there.
        with somebody_served(broker) as is_served:
            sockets, before = broker.socket_count(), broker.memory_bytes()
            idle = []
            for number in range(IDLE_CONNECTIONS):
                # One address has not always ports for all of them.
                source = (f"127.0.1.{1 + number % 4}", 0)
                connection = socket.create_connection((host, int(port)), source_address=source)
                stack.callback(connection.close)
                idle.append(connection)
            wait_until(lambda: broker.socket_count() == sockets + IDLE_CONNECTIONS, "all are accepted")
            is_served()
            assert broker.memory_bytes() - before < IDLE_CONNECTIONS * IDLE_CONNECTION_BYTES_MAX
            # They are not only accepted: the first and the last are answered.
            for connection in (idle[0], idle[-1]):
                connection.sendall(struct.pack(">ihhih", 10, 18, 0, 77, -1))
                assert struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))[1] == 77
            stack.close()
            wait_until(lambda: broker.socket_count() == sockets, "all are gone")
        broker.check_health()


def test_a_client_that_vanishes_without_a_word_is_closed_after_the_idle_time(impatient: RoughBroker) -> None:
    ports = []
    for _ in range(20):
        with impatient.connect("half open") as client:
            port = client.socket.getsockname()[1]
            client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            try:
                client.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            except PermissionError as error:
                pytest.skip(f"a socket cannot be closed silently: {error.strerror}")
        assert port in impatient.ports_connected(), "the broker cannot know"
        ports.append(port)
    wait_until(lambda: not impatient.ports_connected() & {*ports}, "they are closed")
    impatient.check_health()


@pytest.mark.honours("connections.max.idle.ms")
def test_who_says_nothing_is_closed_and_who_waits_for_records_is_not(impatient: RoughBroker) -> None:
    with impatient.connect("silent") as silent, impatient.connect("patient") as patient:
        end = len(patient.values(TOPIC))
        asked = fetch_request(TOPIC, offset=end, max_wait_ms=3 * IDLE_MS)
        patient.send(patient.encode(asked, FETCH_VERSION))
        assert silent.is_closed_by_broker()
        assert patient.read(FetchResponse).error_code == ErrorCode.NONE
    impatient.check_health()


def test_a_client_that_sends_a_byte_now_and_then_is_closed(impatient: RoughBroker) -> None:
    with somebody_served(impatient), impatient.connect("slow writer") as writer:
        frame = struct.pack(">i", 2**20) + bytes(1_000)
        sent = 0
        while sent < len(frame) and not writer.is_closed_by_broker(within_s=IDLE_MS / 1000 / 5):
            writer.socket.send(frame[sent : sent + 1])
            sent += 1
        assert 4 < sent < 100
    impatient.check_health()
    assert "unfinished request" in impatient.log()


def test_a_frame_that_takes_long_but_comes_at_a_pace_is_answered(impatient: RoughBroker) -> None:
    with impatient.connect("steady writer") as writer:
        topics = [MetadataRequestTopic(name=f"{number:0>200}") for number in range(100)]
        frame = writer.encode(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        pieces = 50
        size = len(frame) // pieces + 1
        for number in range(pieces):
            writer.send(frame[number * size : (number + 1) * size])
            # In all it takes three times as long as silence is borne.
            time.sleep(3 * IDLE_MS / 1000 / pieces)
        assert len(writer.read(MetadataResponse).topics) == len(topics)
    impatient.check_health()


# ----------------------------------------------------------------------------- more than there are files for


def test_a_broker_without_files_for_more_clients_serves_those_it_has(tmp_path: Path) -> None:
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        pytest.skip("prlimit is not installed")
    with RoughBroker(tmp_path, wrapper=(prlimit, "--nofile=100:100")) as broker, ExitStack() as stack:
        with broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
        with somebody_served(broker) as is_served:
            for _ in range(200):
                stack.enter_context(broker.connect("one too many"))
            wait_until(lambda: broker.socket_count() > 60, "there are no files left")
            is_served()
            stack.close()
        broker.check_health()
        lines = [re.sub(r"\d+", "", line) for line in broker.log().splitlines()]
        assert max(map(lines.count, lines)) < 20, broker.log()[-4000:]


# ----------------------------------------------------------------------------- how records leave


def test_large_fetches_in_plaintext_leave_by_sendfile(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    calls = tmp_path / "calls"
    # The tracer is a grandchild, so that signals reach the broker itself.
    wrapper = (strace, "-D", "-f", "-qq", "-e", "trace=sendfile", "-e", "signal=none", "-o", str(calls))
    with RoughBroker(tmp_path / "broker", wrapper=wrapper) as broker:
        with broker.connect() as client:
            assert client.create_topic(LARGE) == ErrorCode.NONE
            value = os.urandom(900_000)
            assert client.produce(LARGE, batch_of(value)).error_code == ErrorCode.NONE
            assert client.values(LARGE) == [value]
        assert broker.stop() == 0
    sent = [int(size) for size in re.findall(r"sendfile.* = (\d+)$", calls.read_text(), re.MULTILINE)]
    assert sum(sent) >= len(value), calls.read_text()
