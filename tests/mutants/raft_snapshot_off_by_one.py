"""A snapshot that misses the last record before its end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from moldau.model.ids import Epoch
from moldau.node import quorum
from moldau.node.quorum_files import encode_snapshot
from moldau.raft.voters import VoterSet
from moldau.wire.records.record import Record


def encode_short(voters: VoterSet, records: Sequence[Record], *, epoch: Epoch, timestamp: int) -> list[bytes]:
    return encode_snapshot(voters, records[:-1], epoch=epoch, timestamp=timestamp)


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(quorum, "encode_snapshot", encode_short):
        yield
