"""Whatever would reach the real machine raises while a simulation runs, and works again after it."""

import asyncio
import io
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.sim.escape import ESCAPES, LOOP_ESCAPES, EscapedTheWorld, sealed
from moldau.sim.loop import SimLoop

CALLS: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time() + 0,
    "time.monotonic": lambda: time.monotonic() + 0,
    "time.perf_counter": lambda: time.perf_counter() + 0,
    "time.sleep": lambda: time.sleep(0),
    "random.random": lambda: random.random() + 0,
    "random.shuffle": lambda: random.shuffle([]),
    "random.seed": lambda: random.seed(1),
    "os.urandom": lambda: os.urandom(1),
    "uuid.uuid4": lambda: str(uuid.uuid4()),
    "secrets.token_bytes": lambda: secrets.token_bytes(1),
    "secrets.randbelow": lambda: secrets.randbelow(2),
    "socket.socket": lambda: socket.socket(socket.AF_INET),
    "socket.create_connection": lambda: socket.create_connection(("127.0.0.1", 1)),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "open": lambda: open(os.devnull).close(),
    "io.open": lambda: io.open(os.devnull).close(),  # noqa: UP020
    "os.open": lambda: os.open(os.devnull, os.O_RDONLY),
    "os.listdir": lambda: os.listdir("."),
    "os.rename": lambda: os.rename("a", "b"),
    "Path.read_text": lambda: Path(os.devnull).read_text(),
    "Path.mkdir": lambda: Path("a").mkdir(),
    "threading.Thread": lambda: threading.Thread(target=print).start(),
    "subprocess.Popen": lambda: subprocess.run([sys.executable], check=False),
    "os.system": lambda: os.system("true"),
}


def inside(use: Callable[[], object]) -> None:
    """Do something in a running simulation."""

    async def scenario() -> None:
        use()

    loop = SimLoop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_would_reach_the_machine_raises(name: str) -> None:
    with pytest.raises(EscapedTheWorld, match=r"inside a simulation: go through the world's ports"):
        inside(CALLS[name])


def test_the_message_names_the_call_and_the_caller() -> None:
    with pytest.raises(EscapedTheWorld, match=r"^time\.time\(\) was called by .*test_escape"):
        inside(CALLS["time.time"])


def test_an_escape_is_not_an_exception_that_code_under_test_could_answer() -> None:
    assert not issubclass(EscapedTheWorld, Exception)


@pytest.mark.parametrize("name", LOOP_ESCAPES)
def test_the_loop_has_no_other_door(name: str) -> None:
    loop = SimLoop()
    with pytest.raises(EscapedTheWorld, match=name):
        getattr(loop, name)()
    loop.close()


def test_the_doors_of_asyncio_are_shut() -> None:
    async def scenario() -> None:
        with pytest.raises(EscapedTheWorld, match="run_in_executor"):
            await asyncio.to_thread(print)
        with pytest.raises(EscapedTheWorld, match="create_connection"):
            await asyncio.open_connection("localhost", 1)
        with pytest.raises(EscapedTheWorld, match="create_server"):
            await asyncio.start_server(lambda reader, writer: None, "localhost", 0)
        with pytest.raises(EscapedTheWorld, match="subprocess"):
            await asyncio.create_subprocess_exec("true")

    loop = SimLoop()
    loop.run_until_complete(scenario())
    loop.close()


def test_everything_works_again_after_the_run() -> None:
    before = [getattr(owner, name, None) for owner, _, names in ESCAPES for name in names]
    with pytest.raises(EscapedTheWorld):
        inside(CALLS["time.time"])
    assert [getattr(owner, name, None) for owner, _, names in ESCAPES for name in names] == before
    assert time.time() > 0


def test_other_threads_are_not_in_the_simulation() -> None:
    answers: list[float] = []
    is_sealed, is_asked = threading.Event(), threading.Event()

    def ask() -> None:
        is_sealed.wait()
        answers.append(time.time())
        is_asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    with sealed():
        is_sealed.set()
        is_asked.wait()
    thread.join()
    assert len(answers) == 1


def test_logging_may_look_at_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    inside(lambda: logging.getLogger("moldau").warning("leader elected"))
    assert caplog.messages == ["leader elected"]
