"""What this node knows of the cluster: the committed image, and the view that its parts have caught up with.

The quorum tells of committed batches in the middle of its steps. So an image is made at once, and a task of
its own publishes it: partitions are opened first, and only then do clients hear of their leaders.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.metadata.frames import decode_frame, encode_frame
from moldau.metadata.image import Delta, Image
from moldau.metadata.view import ClusterView
from moldau.model.ids import Epoch, Offset
from moldau.raft.roles import Role
from moldau.wire.records.record import Record


class Follower(Protocol):
    """A part of the node that acts on what has changed."""

    async def follow(self, view: ClusterView, delta: Delta) -> None:
        """Take over the changes that lead to `view`."""
        ...


class MetadataMachine:
    """The quorum's state machine: committed records make images."""

    def __init__(self, *, on_role: Callable[[Role], None], on_applied: Callable[[], None]) -> None:
        self.image = Image()
        self.epoch_before: Callable[[Offset], Epoch] = lambda _: Epoch(0)
        """The epoch of the record that ends at an offset; the log answers once it is open."""
        self.published: deque[tuple[Image, Delta]] = deque()
        self.is_new = asyncio.Event()
        self._on_role = on_role
        self._on_applied = on_applied

    def restore(self, records: Sequence[Record], end: Offset) -> None:
        """Begin anew with what a snapshot holds."""
        self.image = Image()
        self._take_in(records, end)

    def apply(self, records: Sequence[Record], end: Offset) -> None:
        """Take in committed records."""
        self._take_in(records, end)

    def dump(self) -> Sequence[Record]:
        """The image as records."""
        return [Record(0, 0, None, encode_frame(record)) for record in self.image.records()]

    def role_changed(self, role: Role) -> None:
        """This replica leads, or follows another one."""
        self._on_role(role)

    def _take_in(self, records: Sequence[Record], end: Offset) -> None:
        decoded = [decode_frame(record.value) for record in records if record.value is not None]
        self.image, delta = self.image.apply(decoded, offset=Offset(end - 1), epoch=self.epoch_before(end))
        self.published.append((self.image, delta))
        self.is_new.set()
        self._on_applied()


class Publisher:
    """Brings the node's parts up to each image in turn, then shows it to clients."""

    def __init__(self, machine: MetadataMachine, view: ClusterView, followers: Sequence[Follower]) -> None:
        self.view = view
        self._machine = machine
        self._followers = followers
        self._reached = asyncio.Condition()

    async def run(self, is_history: Callable[[Image], bool]) -> None:
        """Publish every image in order; those of the past are passed over, and come as one.

        Whoever followed the past step by step would lead in epochs that are long over, and open topics in the
        directories of those that have their names now.
        """
        machine = self._machine
        while is_history(machine.image):
            await machine.is_new.wait()
            machine.is_new.clear()
        machine.published.clear()
        found = machine.image
        await self._publish(*Image().apply(found.records(), offset=found.offset, epoch=found.epoch))
        while True:
            while machine.published:
                await self._publish(*machine.published.popleft())
            await machine.is_new.wait()
            machine.is_new.clear()

    async def _publish(self, image: Image, delta: Delta) -> None:
        view = self.view.next(image)
        for follower in self._followers:
            await follower.follow(view, delta)
        self.view = view
        async with self._reached:
            self._reached.notify_all()

    async def until(self, is_reached: Callable[[ClusterView], bool]) -> ClusterView:
        """The first published view of which something is true."""
        async with self._reached:
            while not is_reached(self.view):
                await self._reached.wait()
        return self.view
