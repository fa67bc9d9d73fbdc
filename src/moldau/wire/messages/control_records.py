"""The contents of control records."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Data
from moldau.wire.types import Int16, Int32, Int64, String, Struct, UInt16, Uuid, field


class ControlRecordTypeSchema(Data, versions="0"):
    """The key of every control record: what kind it is."""

    type: Int16


class EndTxnMarker(Data, versions="0"):
    """The outcome of a transaction; the key says which."""

    coordinator_epoch: Int32


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """A new leader's first record: who leads, and who voted."""

    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


class LeaderChangeMessageVoter(Struct):
    """A voter of the quorum."""

    voter_id: Int32
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID)


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    """The last record of a snapshot."""

    version: Int16


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    """The version of the quorum's protocol from here on."""

    version: Int16
    kraft_version: Int16


class VotersRecord(Data, versions="0", flexible="0+"):
    """The voters of the quorum from here on."""

    version: Int16
    voters: list[VotersRecordVoter]


class VotersRecordVoter(Struct):
    """A voter, where it listens and what it supports."""

    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


class Endpoint(Struct):
    """A listener of a voter."""

    name: String
    host: String
    port: UInt16


class KRaftVersionFeature(Struct):
    """The range of quorum versions that a voter supports."""

    min_supported_version: Int16
    max_supported_version: Int16
