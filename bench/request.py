"""What a small Produce request costs the broker besides sockets: from its bytes to the bytes of its reply.

    python bench/request.py [--turns 300]

A node runs in this process, with its data in memory where the system has such a place, with metrics, an
authorizer, and quotas that are never reached. A connection that is no socket is given the requests. The best
of many short turns says what the code needs, on a busy machine too; what the kernel needs to receive, to send
and to wake a client comes on top.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence

from moldau.bench.payloads import batches
from moldau.bench.pipeline import ACKS_ALL, ACKS_LEADER, Reel, produce_reel
from moldau.cli._serving import run_node
from moldau.cli.dev import settings
from moldau.cli.storage import format_if_new
from moldau.client import NewTopic, connect
from moldau.node.apis.table import BROKER_APIS
from moldau.node.config import NodeConfig
from moldau.node.connections import ClientConnection
from moldau.node.logs import configure
from moldau.node.node import Node
from moldau.world.ports import Address, Buffer, FileSlice

# Else a disk would be measured too.
MEMORY = "/dev/shm"
REQUESTS_PER_TURN = 50
UNREACHED_QUOTAS = {"producer_byte_rate": 1e12, "request_percentage": 1e6}
CASES = (("replicated", "all", ACKS_ALL), ("flushed", "1", ACKS_LEADER))


class NoSocket:
    """The Connection port, with nobody at the other end; it counts what it is given."""

    peer = Address("127.0.0.1", 1)
    peer_subject = None

    def __init__(self) -> None:
        self.replies = 0

    def send(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        """Take replies, one in each chunk."""
        self.replies += len(chunks)

    def pause_reading(self) -> None:
        """Nothing is read anyway."""

    def resume_reading(self) -> None:
        """Nothing is read anyway."""

    def close(self) -> None:
        """A request was refused."""
        raise AssertionError("the node closed the connection")

    abort = close


async def measure(node: Node, turns: int) -> None:
    """Print a line for each case, single and pipelined."""
    (listener,) = node.config.broker_listeners
    async with connect(str(listener.bind)) as client:
        await client.admin.alter_quotas((("user", None),), UNREACHED_QUOTAS)
        for durability, _, _ in CASES:
            await client.admin.create_topics(
                NewTopic(durability, partitions=1, configs={"moldau.durability": durability})
            )
    for durability, acks_name, acks in CASES:
        reel = produce_reel(durability, batches(value_bytes=100, records_per_batch=1), acks=acks)
        for count in (1, REQUESTS_PER_TURN):
            seconds = [await turn(node, reel, at_once=count) for _ in range(turns)]
            what = "one by one" if count == 1 else f"{count} at once"
            label = f"1 x 100 B, acks={acks_name}, {durability}, {what}"
            print(f"{label:<52}{min(seconds) * 1e6:>8.1f} us/request, best of {turns} turns")


async def turn(node: Node, reel: Reel, *, at_once: int) -> float:
    """The seconds that a request takes, of so many that are there at once."""
    (listener,) = node.config.broker_listeners
    connection = ClientConnection(node.server, listener, BROKER_APIS)
    no_socket = NoSocket()
    connection.connected(no_socket)
    part = at_once * reel.frame_bytes
    began = time.perf_counter()
    for start in range(0, REQUESTS_PER_TURN * reel.frame_bytes, part):
        room = connection.buffer_to_fill(part)
        room[:part] = reel.data[start : start + part]
        connection.filled(part)
    seconds = time.perf_counter() - began
    while no_socket.replies < REQUESTS_PER_TURN:  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0)
    connection.disconnected(None)
    return seconds / REQUESTS_PER_TURN


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def main() -> None:
    """Run a node, measure, and stop it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=300)
    turns: int = parser.parse_args().turns
    configure(sys.stderr, level=logging.WARNING)
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as directory:
        config = NodeConfig.of(settings(directory, port=free_port(), controller_port=free_port()))
        format_if_new(config, None)

        def begin(node: Node) -> None:
            measuring = asyncio.get_running_loop().create_task(measure(node, turns))

            def end(done: asyncio.Task[None]) -> None:
                # As whoever runs a node stops it.
                signal.raise_signal(signal.SIGTERM)
                done.result()

            measuring.add_done_callback(end)

        run_node(config, on_ready=begin)


if __name__ == "__main__":
    main()
