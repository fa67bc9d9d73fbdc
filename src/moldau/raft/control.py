"""The quorum's own records in its log: who was elected, and who votes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.model.errors import MalformedMessage
from moldau.model.ids import DirectoryId, NodeId, Offset
from moldau.raft.roles import Ballot
from moldau.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from moldau.wire.messages import control_records as wire
from moldau.wire.records.batch import ControlType, control_type, decode_batch
from moldau.wire.records.header import iter_headers

LEADER_CHANGE_VERSION: Final = 1
VOTERS_VERSION: Final = 0
KRAFT_VERSION: Final = 1
"""The version of the protocol with voters that change (KIP-853); we speak no older one."""


def leader_change(leader: ReplicaKey, voters: VoterSet, ballot: Ballot) -> bytes:
    """The first record of an epoch."""
    return wire.LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION,
        leader_id=leader.node_id,
        voters=[_elector(key) for key in voters.keys],
        granting_voters=[_elector(key) for key in voters.keys if key in ballot.granted],
    ).encode(LEADER_CHANGE_VERSION)


def _elector(key: ReplicaKey) -> wire.LeaderChangeMessageVoter:
    return wire.LeaderChangeMessageVoter(voter_id=key.node_id, voter_directory_id=key.directory_id)


def kraft_version() -> bytes:
    """The record that says which protocol the quorum speaks."""
    return wire.KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSION).encode(0)


def voters_record(voters: VoterSet) -> bytes:
    """The record from which on these voters count."""
    return wire.VotersRecord(
        version=VOTERS_VERSION,
        voters=[
            wire.VotersRecordVoter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[wire.Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                kraft_version_feature=wire.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=KRAFT_VERSION
                ),
            )
            for voter in voters.voters
        ],
    ).encode(VOTERS_VERSION)


def read_voters_record(value: bytes) -> VoterSet:
    """The voters that a record names; MalformedMessage if they cannot be a quorum."""
    record = wire.VotersRecord.decode(value, VOTERS_VERSION)
    ids = [voter.voter_id for voter in record.voters]
    if len(set(ids)) < len(ids) or not all(voter.endpoints for voter in record.voters):
        raise MalformedMessage("a voters record names a voter twice, or one without an endpoint")
    return VoterSet.of(
        *(
            Voter(
                ReplicaKey(NodeId(voter.voter_id), DirectoryId(voter.voter_directory_id)),
                tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            )
            for voter in record.voters
        )
    )


def voter_changes(records: bytes) -> Iterator[tuple[Offset, VoterSet]]:
    """The voter sets among these batches, with their offsets; other batches are not looked into."""
    for position, header in iter_headers(records):
        if header.is_control:
            _, batch = decode_batch(memoryview(records)[position : position + header.size_bytes])
            for record in batch:
                if not header.base_offset <= record.offset <= header.last_offset:
                    raise MalformedMessage(f"a control record at {record.offset} is outside of its batch")
                if control_type(record.key) is ControlType.KRAFT_VOTERS and record.value is not None:
                    yield Offset(record.offset), read_voters_record(record.value)
