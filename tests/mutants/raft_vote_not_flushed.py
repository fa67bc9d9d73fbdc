"""A vote that is sent while it is only in the page cache: after a power cut the node votes again."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.node.quorum import QuorumNode
from moldau.node.quorum_files import write_election
from moldau.node.quorum_log import PATH
from moldau.raft.events import ElectionPersisted, ElectionState


async def persist(self: QuorumNode, state: ElectionState) -> None:
    disk = self._world.disk
    for old, new in write_election(disk, PATH, state).renames:
        disk.rename(old, new)
    self._tell(ElectionPersisted(state))


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(QuorumNode, "_persist", persist):
        yield
