"""`moldau.cluster()`: brokers that are there when a test needs them, and gone afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moldau
from moldau.client import connect_sync
from moldau.testing import BrokerFailed, Cluster

TIMEOUT_S = 60

# Tells where its cluster is, and waits to be killed.
OWNER = """
import signal, sys, threading, moldau
cluster = moldau.cluster()
starting = threading.Thread(target=cluster.start)
starting.start()
starting.join()
if "paused" in sys.argv:
    cluster.pause(1)
print(cluster.pid(1), cluster.bootstrap_servers, flush=True)
if "forgets" not in sys.argv:
    signal.pause()
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with moldau.cluster() as cluster:
        yield cluster


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only what its parent has not asked about."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def port_of(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def write(cluster: Cluster, topic: str, value: bytes) -> None:
    with connect_sync(cluster.bootstrap_servers) as client, client.producer() as producer:
        producer.wait(producer.send(topic, value))


def values(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    with (
        connect_sync(cluster.bootstrap_servers) as client,
        client.consumer([topic], auto_offset_reset="earliest") as consumer,
    ):
        found: list[bytes | None] = []
        while len(found) < count:
            for records in consumer.poll(timeout_ms=1000).values():
                found += [record.value for record in records]
        return found


# ---------------------------------------------------------------- while it is there


def test_a_cluster_serves_and_then_is_gone() -> None:
    with moldau.cluster() as cluster:
        address, pid = port_of(cluster), cluster.pid(1)
        assert pid is not None
        assert cluster.broker_ids == (1,)
        topic = cluster.topic(partitions=3, settings={"retention.ms": 3600000})
        with connect_sync(cluster.bootstrap_servers) as client:
            assert len(client.admin.list_topics()[topic].partitions) == 3
        write(cluster, topic, b"hello")
        assert values(cluster, topic, 1) == [b"hello"]
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        assert folder.exists()
    assert has_ended(pid)
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with pytest.raises(RuntimeError, match="does not run"):
        _ = cluster.bootstrap_servers


def test_a_cluster_in_a_coroutine() -> None:
    async def use() -> int:
        async with moldau.cluster() as cluster:
            topic = await cluster.topic()
            before = cluster.bootstrap_servers, cluster.pid(1)
            await cluster.kill(1)
            assert cluster.pid(1) is None
            await cluster.restart(1)
            await cluster.pause(1)
            await cluster.resume(1)
            await cluster.heal()
            await cluster.delete_topic(topic)
            assert cluster.bootstrap_servers == before[0]
            assert cluster.pid(1) != before[1]
            cluster.check()
            pid = cluster.pid(1)
            assert pid is not None
            return pid

    assert has_ended(asyncio.run(use()))


def test_a_coroutine_that_is_cancelled_while_it_starts_leaves_nothing() -> None:
    cluster = moldau.cluster()

    async def use() -> None:
        async with cluster:
            raise AssertionError("it was cancelled before")

    async def cancel() -> None:
        task = asyncio.create_task(use())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.pid(1)


def test_what_was_acknowledged_outlives_a_kill(running: Cluster) -> None:
    topic = running.topic()
    write(running, topic, b"one")
    address = running.bootstrap_servers
    running.kill(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(port_of(running))
    running.restart(1)
    assert running.bootstrap_servers == address
    write(running, topic, b"two")
    assert values(running, topic, 2) == [b"one", b"two"]


def test_a_broker_that_runs_is_shut_down_before_it_is_started_again(running: Cluster) -> None:
    before = running.pid(1)
    running.restart(1)
    assert running.pid(1) not in (None, before)
    assert "all logs are closed" in running.log_end(1)


def test_a_paused_broker_answers_when_it_is_resumed(running: Cluster) -> None:
    running.pause(1)
    with socket.create_connection(port_of(running), timeout=30) as client:
        # ApiVersions version 0, from nobody, with correlation id 7.
        client.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(4)
        running.resume(1)
        client.settimeout(30)
        assert client.recv(8)[4:] == bytes.fromhex("00000007")


def test_whatever_was_done_to_it_can_be_healed(running: Cluster) -> None:
    for harm in (running.kill, running.shut_down, running.pause):
        harm(1)
        running.heal()
        assert running.topic() is not None
    running.check()


def test_two_clusters_are_strangers(running: Cluster) -> None:
    with moldau.cluster() as other:
        assert port_of(other) != port_of(running)
        running.topic("only-here")
        with connect_sync(other.bootstrap_servers) as client:
            assert client.admin.list_topics() == {}


def test_settings_are_those_of_a_server() -> None:
    with (
        moldau.cluster(settings={"num.partitions": 4, "auto.create.topics.enable": False}) as cluster,
        connect_sync(cluster.bootstrap_servers) as client,
    ):
        name = cluster.topic(partitions=-1)
        assert len(client.admin.list_topics()[name].partitions) == 4


def test_a_group_that_is_read_again_at_once_does_not_wait_for_a_heartbeat() -> None:
    rare = {f"group.consumer.{each}heartbeat.interval.ms": 40_000 for each in ("", "max.")}
    with moldau.cluster(settings=rare) as cluster, connect_sync(cluster.bootstrap_servers) as client:
        topic = cluster.topic()
        for _ in range(2):
            write(cluster, topic, b"record")
            with client.group_consumer(
                [topic], group_id="g", group_protocol="consumer", auto_offset_reset="earliest"
            ) as reader:
                assert reader.poll(timeout_ms=30_000)


def test_what_the_environment_says_to_brokers_is_not_meant_for_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:9092")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "7")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    with moldau.cluster() as cluster, connect_sync(cluster.bootstrap_servers) as client:
        name = cluster.topic(partitions=-1)
        assert len(client.admin.list_topics()[name].partitions) == 1


def test_a_folder_that_is_given_keeps_everything(tmp_path: Path) -> None:
    for count in (1, 2):
        with moldau.cluster(folder=tmp_path / "kept") as cluster:
            if count == 1:
                cluster.topic("kept")
            write(cluster, "kept", b"%d" % count)
            assert len(values(cluster, "kept", count)) == count
    assert "all logs are closed" in (tmp_path / "kept" / "broker-1" / "server.log").read_text()


# ---------------------------------------------------------------- what goes wrong


def test_an_error_in_the_block_ends_the_cluster_too() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        divide_by_zero(lambda cluster: None)
    assert not hasattr(caught.value, "__notes__")


def test_a_broker_that_ended_by_itself_is_told_of() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"(?s)by itself, with exit code -6.*moldau is ready"),
        moldau.cluster() as cluster,
    ):
        crash(cluster)


def test_an_error_comes_with_the_log_of_a_broker_that_ended_before() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        divide_by_zero(crash)
    (note,) = caught.value.__notes__
    assert "Broker 1 has ended by itself" in note
    assert "moldau is ready" in note


def divide_by_zero(prelude: Callable[[Cluster], None]) -> None:
    """Fail inside the block, after the prelude; no process is left."""
    pid = None
    try:
        with moldau.cluster() as cluster:
            pid = cluster.pid(1)
            prelude(cluster)
            _ = 1 / 0
    finally:
        assert pid is not None
        assert has_ended(pid)


def crash(cluster: Cluster) -> None:
    pid = cluster.pid(1)
    assert pid is not None
    # It answers a little before it says so.
    wait_until(lambda: "moldau is ready" in cluster.log(1))
    os.kill(pid, signal.SIGABRT)
    wait_until(lambda: cluster.pid(1) is None)


def test_a_broker_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"Did you mean num\.partitions"),
        moldau.cluster(settings={"num.partition": 1}),
    ):
        pass


def test_a_broker_that_takes_too_long_is_given_up() -> None:
    before = set(threading.enumerate())
    with (
        pytest.raises(BrokerFailed, match=r"did not serve within 0\.001 s"),
        moldau.cluster(start_timeout_s=0.001),
    ):
        pass
    assert set(threading.enumerate()) <= before


def test_what_cannot_be_had_is_said_at_once(running: Cluster) -> None:
    with pytest.raises(NotImplementedError, match="3 brokers cannot be started yet"):
        moldau.cluster(brokers=3)
    with pytest.raises(ValueError, match="at least one"):
        moldau.cluster(brokers=0)
    with pytest.raises(ValueError, match="listeners cannot be chosen"):
        moldau.cluster(settings={"listeners": "PLAINTEXT://:9092"})
    with pytest.raises(ValueError, match="no broker 2; there is 1"):
        running.kill(2)
    with pytest.raises(RuntimeError, match="started already"):
        running.start()


# ---------------------------------------------------------------- its end, and that of others


@pytest.mark.parametrize("how", ["", "paused"])
def test_brokers_end_with_a_parent_that_was_killed(how: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline().split()[0])
        # The thread that started the cluster ended long ago.
        assert not has_ended(pid)
        owner.kill()
    wait_until(lambda: has_ended(pid))


def test_a_cluster_that_nobody_stops_ends_with_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OWNER, "forgets"], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stderr == ""
    pid = int(done.stdout.split()[0])
    wait_until(lambda: has_ended(pid))
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_the_process_leaves_the_brokers_alone(running: Cluster) -> None:
    child = os.fork()
    if child == 0:
        try:
            running.stop()
            running.kill(1)
        except RuntimeError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert running.pid(1) is not None


def test_a_command_whose_parent_has_ended_does_not_begin() -> None:
    environment = {**os.environ, "MOLDAU_ENDS_WITH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "moldau", "version"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "has ended" in done.stderr


def test_many_threads_may_have_clusters_and_share_one(running: Cluster) -> None:
    topics: list[str] = []

    def work() -> None:
        topics.append(running.topic())
        with moldau.cluster() as own:
            own.restart(1)
            topics.append(own.topic())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(topics)) == 6


def test_the_parent_loads_neither_the_broker_nor_asyncio() -> None:
    script = (
        "import sys, moldau\n"
        "assert not [name for name in sys.modules if name.startswith('moldau.')]\n"
        "with moldau.cluster(): pass\n"
        "print([name for name in sys.modules if name.startswith(('moldau.node', 'moldau.cli', 'asyncio'))])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
