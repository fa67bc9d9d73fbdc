"""A follower that truncates to its own high watermark, which lags behind the leader's (KIP-101)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.model.ids import Epoch
from moldau.raft.events import Truncate
from moldau.raft.quorum import Quorum
from moldau.raft.voters import Peer

follow = Quorum._follow


def follow_and_truncate(self: Quorum, epoch: Epoch, leader: Peer) -> None:
    follow(self, epoch, leader)
    if not self._is_log_changing and self.committed < self._log.end_offset:
        self._change_log(Truncate(self.committed))
        self.voters = self.voters.truncated(self.committed)


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Quorum, "_follow", follow_and_truncate):
        yield
