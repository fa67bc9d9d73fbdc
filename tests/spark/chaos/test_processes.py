"""Only processes of a driver's session are found, and killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from spark.chaos import processes
from spark.chaos.plan import Role
from spark.chaos.processes import Process

# The child says itself that it is up: before its program is loaded, it has no command line. The leader stays
# when the child is gone: a process that is just ending has no command line any more.
CODE = """
import signal, subprocess
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
child.stdin.write(b"up\\n")
child.stdin.flush()
child.wait()
signal.pause()
"""


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session, with a child in it."""
    process = subprocess.Popen([sys.executable, "-c", CODE], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_all_of_a_session_are_found_and_can_be_killed(leader: subprocess.Popen[bytes]) -> None:
    first, second = processes.of_session(leader.pid)
    assert (first.pid, first.group, second.parent) == (leader.pid, leader.pid, leader.pid)
    assert second.command == "cat"
    assert processes.kill(second)
    assert processes.of_session(leader.pid) == [first]
    assert not processes.kill(second), "it has ended"


def test_a_number_that_belongs_to_a_stranger_by_now_is_let_be(leader: subprocess.Popen[bytes]) -> None:
    first, second = processes.of_session(leader.pid)
    assert not processes.kill(replace(second, session=os.getsid(0)))
    assert processes.of_session(leader.pid) == [first, second]


def test_python_processes_are_known_by_their_command_lines() -> None:
    def process(pid: int, parent: int, module: str) -> Process:
        return Process(pid, parent, pid, 1, f"/venv/bin/python -m {module}")

    daemon = process(10, 2, "pyspark.daemon pyspark.worker")
    workers = [process(pid, 10, "pyspark.daemon pyspark.worker") for pid in (11, 12)]
    source = process(20, 2, "pyspark.sql.streaming.python_streaming_source_runner")
    sink_daemon = process(30, 2, "pyspark.daemon pyspark.sql.worker.python_streaming_sink_runner")
    sink = process(31, 30, "pyspark.daemon pyspark.sql.worker.python_streaming_sink_runner")
    other = process(40, 2, "pyspark.daemon pyspark.sql.worker.create_data_source")
    jvm = Process(2, 1, 1, 1, "java -cp spark org.apache.spark.deploy.SparkSubmit pyspark-shell")
    everything = [jvm, daemon, *workers, source, sink_daemon, sink, other]
    assert processes.in_role(Role.TASK, everything) == workers
    assert processes.in_role(Role.TASKS, everything) == workers
    assert processes.in_role(Role.DAEMON, everything) == [daemon]
    assert processes.in_role(Role.SOURCE, everything) == [source]
    assert processes.in_role(Role.SINK, everything) == [sink_daemon, sink]
