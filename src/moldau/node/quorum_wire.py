"""The words of the quorum as Kafka's messages, and back; one topic and one partition is in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import METADATA_TOPIC_ID, ZERO_UUID, ClusterId, DirectoryId, Epoch, NodeId, Offset
from moldau.raft import messages as core
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import Endpoint, Peer, ReplicaKey, Voter
from moldau.wire import message as wire
from moldau.wire.messages import fetch, raft
from moldau.wire.types import FileSlice

TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0
NO_NODE: Final = NodeId(-1)
NO_OFFSET: Final = Offset(-1)
LISTENER: Final = "CONTROLLER"

# The newest version of each API; every node of a quorum speaks it.
VERSIONS: Final[dict[type[wire.Request], int]] = {
    fetch.FetchRequest: 18,
    raft.VoteRequest: 2,
    raft.BeginQuorumEpochRequest: 1,
    raft.EndQuorumEpochRequest: 1,
    raft.DescribeQuorumRequest: 2,
    raft.FetchSnapshotRequest: 1,
    raft.AddRaftVoterRequest: 1,
    raft.RemoveRaftVoterRequest: 0,
    raft.UpdateRaftVoterRequest: 0,
}

# From which version on a response says where the leader is: it has tags to say it in.
_ENDPOINTS_SINCE: Final[dict[type[wire.Request], int]] = {fetch.FetchRequest: 16}
_ENDPOINTS_SINCE_OTHERWISE: Final = 1
# Before it, a replica could not be told where its log diverges, or to load a snapshot.
_FETCH_MIN: Final = 12
_DESCRIBES_DIRECTORIES: Final = 2

T = TypeVar("T")


# ---------------------------------------------------------------- requests


def to_wire(request: core.Request) -> wire.Request:
    """A request as it is sent."""
    match request:
        case core.Vote():
            vote = raft.VoteRequestPartitionData(
                partition_index=PARTITION,
                replica_epoch=request.epoch,
                replica_id=request.candidate.node_id,
                replica_directory_id=request.candidate.directory_id,
                voter_directory_id=request.voter.directory_id,
                last_offset_epoch=request.log_end.epoch,
                last_offset=request.log_end.offset,
                pre_vote=request.is_pre_vote,
            )
            return raft.VoteRequest(
                cluster_id=request.cluster_id,
                voter_id=request.voter.node_id,
                topics=[raft.VoteRequestTopicData(topic_name=TOPIC, partitions=[vote])],
            )
        case core.BeginEpoch(leader=leader):
            begin = raft.BeginQuorumEpochRequestPartitionData(
                partition_index=PARTITION,
                voter_directory_id=request.voter.directory_id,
                leader_id=leader.node_id,
                leader_epoch=request.epoch,
            )
            return raft.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                voter_id=request.voter.node_id,
                topics=[raft.BeginQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=[begin])],
                leader_endpoints=[
                    raft.LeaderEndpoint(
                        name=leader.endpoint.name, host=leader.endpoint.host, port=leader.endpoint.port
                    )
                ],
            )
        case core.EndEpoch():
            end = raft.EndQuorumEpochPartitionData(
                partition_index=PARTITION,
                leader_id=request.leader_id,
                leader_epoch=request.epoch,
                preferred_candidates=[
                    raft.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
                    for key in request.successors
                ],
            )
            return raft.EndQuorumEpochRequest(
                cluster_id=request.cluster_id,
                topics=[raft.EndQuorumEpochTopicData(topic_name=TOPIC, partitions=[end])],
            )
        case core.Fetch():
            position = fetch.FetchPartition(
                partition=PARTITION,
                current_leader_epoch=request.epoch,
                fetch_offset=request.offset,
                last_fetched_epoch=request.last_epoch,
                partition_max_bytes=request.bytes_max,
                replica_directory_id=request.replica.directory_id,
                high_watermark=request.high_watermark,
            )
            return fetch.FetchRequest(
                cluster_id=request.cluster_id,
                replica_state=fetch.ReplicaState(replica_id=request.replica.node_id),
                max_wait_ms=request.wait_ms_max,
                min_bytes=1,
                max_bytes=request.bytes_max,
                topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[position])],
            )
        case core.FetchSnapshot():
            piece = raft.FetchSnapshotRequestPartitionSnapshot(
                partition=PARTITION,
                current_leader_epoch=request.epoch,
                snapshot_id=_snapshot_id(request.snapshot_id),
                position=request.position,
                replica_directory_id=request.replica.directory_id,
            )
            return raft.FetchSnapshotRequest(
                cluster_id=request.cluster_id,
                replica_id=request.replica.node_id,
                max_bytes=request.bytes_max,
                topics=[raft.FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=[piece])],
            )
        case core.AddVoter(voter=voter):
            return raft.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout_ms=0,
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                listeners=_listeners(voter.endpoints),
                ack_when_committed=request.is_acknowledged_when_committed,
            )
        case core.RemoveVoter(key=key):
            return raft.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id, voter_id=key.node_id, voter_directory_id=key.directory_id
            )
        case core.UpdateVoter(voter=voter):
            return raft.UpdateRaftVoterRequest(
                cluster_id=request.cluster_id,
                current_leader_epoch=request.epoch,
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                listeners=_listeners(voter.endpoints),
                kraft_version_feature=raft.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
        case core.Describe():
            partition = raft.DescribeQuorumRequestPartitionData(partition_index=PARTITION)
            topic = raft.DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[partition])
            return raft.DescribeQuorumRequest(topics=[topic])


def from_wire(request: wire.Request) -> core.Request:
    """A request as it was sent; KafkaError if it is not about the quorum's one partition."""
    match request:
        case raft.VoteRequest():
            vote = _only(_only(request.topics).partitions)
            return core.Vote(
                _cluster(request.cluster_id),
                _key(request.voter_id, vote.voter_directory_id),
                _key(vote.replica_id, vote.replica_directory_id),
                Epoch(vote.replica_epoch),
                OffsetAndEpoch(Offset(vote.last_offset), Epoch(vote.last_offset_epoch)),
                vote.pre_vote,
            )
        case raft.BeginQuorumEpochRequest():
            begin = _only(_only(request.topics).partitions)
            at = _only(request.leader_endpoints[:1])
            return core.BeginEpoch(
                _cluster(request.cluster_id),
                _key(request.voter_id, begin.voter_directory_id),
                Epoch(begin.leader_epoch),
                Peer(NodeId(begin.leader_id), Endpoint(at.name, at.host, at.port)),
            )
        case raft.EndQuorumEpochRequest():
            end = _only(_only(request.topics).partitions)
            return core.EndEpoch(
                _cluster(request.cluster_id),
                Epoch(end.leader_epoch),
                NodeId(end.leader_id),
                tuple(_key(c.candidate_id, c.candidate_directory_id) for c in end.preferred_candidates),
            )
        case fetch.FetchRequest():
            position = _only(_only(request.topics).partitions)
            return core.Fetch(
                _cluster(request.cluster_id),
                _key(request.replica_state.replica_id, position.replica_directory_id),
                Epoch(position.current_leader_epoch),
                Offset(position.fetch_offset),
                Epoch(position.last_fetched_epoch),
                wait_ms_max=request.max_wait_ms,
                bytes_max=min(request.max_bytes, position.partition_max_bytes),
                high_watermark=Offset(position.high_watermark),
            )
        case raft.FetchSnapshotRequest():
            piece = _only(_only(request.topics).partitions)
            return core.FetchSnapshot(
                _cluster(request.cluster_id),
                _key(request.replica_id, piece.replica_directory_id),
                Epoch(piece.current_leader_epoch),
                _place(piece.snapshot_id),
                piece.position,
                request.max_bytes,
            )
        case raft.AddRaftVoterRequest():
            voter = _voter(request.voter_id, request.voter_directory_id, request.listeners)
            return core.AddVoter(_cluster(request.cluster_id), voter, request.ack_when_committed)
        case raft.RemoveRaftVoterRequest():
            key = _key(request.voter_id, request.voter_directory_id)
            return core.RemoveVoter(_cluster(request.cluster_id), key)
        case raft.UpdateRaftVoterRequest():
            voter = _voter(request.voter_id, request.voter_directory_id, request.listeners)
            epoch = Epoch(request.current_leader_epoch)
            return core.UpdateVoter(_cluster(request.cluster_id), epoch, voter)
        case raft.DescribeQuorumRequest():
            _only(_only(request.topics).partitions)
            return core.Describe()
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} is not for the quorum.")


def _only(items: Sequence[T]) -> T:
    if len(items) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The quorum has one partition.")
    return items[0]


def _cluster(cluster_id: str | None) -> ClusterId | None:
    return None if cluster_id is None else ClusterId(cluster_id)


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), DirectoryId(directory_id))  # type: ignore[arg-type]


def _voter(node_id: int, directory_id: bytes, listeners: Sequence[raft.Listener]) -> Voter:
    endpoints = tuple(Endpoint(listener.name, listener.host, listener.port) for listener in listeners)
    return Voter(_key(node_id, directory_id), endpoints)


def _listeners(endpoints: Sequence[Endpoint]) -> list[raft.Listener]:
    return [raft.Listener(name=e.name, host=e.host, port=e.port) for e in endpoints]


def _snapshot_id(place: OffsetAndEpoch) -> raft.SnapshotId:
    return raft.SnapshotId(end_offset=place.offset, epoch=place.epoch)


def _place(snapshot_id: raft.SnapshotId | fetch.SnapshotId) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(snapshot_id.end_offset), Epoch(snapshot_id.epoch))


# ---------------------------------------------------------------- replies

Bytes = bytes | bytearray | memoryview | FileSlice


@dataclass(frozen=True, slots=True)
class Filled:
    """A reply with the bytes that it takes from the log or a snapshot, if it takes any."""

    reply: core.Reply
    data: Bytes = b""


def check_version(request: wire.Request, version: int) -> None:
    """KafkaError if a replica that asks in this version could not be told all that it must know."""
    if isinstance(request, fetch.FetchRequest) and version < _FETCH_MIN:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"A replica fetches in version {_FETCH_MIN} or later."
        )


def reply_to_wire(filled: Filled, request: wire.Request, *, version: int, now_wall_ms: int) -> wire.Response:
    """The response to `request` as it is sent in `version`, without what that version cannot say."""
    reply = filled.reply
    leadership = reply.leadership
    leader_id = leadership.leader.node_id if leadership.leader else NO_NODE
    says_where = version >= _ENDPOINTS_SINCE.get(type(request), _ENDPOINTS_SINCE_OTHERWISE)
    endpoints = [
        raft.NodeEndpoint(node_id=peer.node_id, host=peer.endpoint.host, port=peer.endpoint.port)
        for peer in (leadership.leader,)
        if peer is not None and says_where
    ]
    match reply:
        case core.VoteReply(error=error):
            vote = raft.VoteResponsePartitionData(
                partition_index=PARTITION,
                error_code=error,
                leader_id=leader_id,
                leader_epoch=leadership.epoch,
                vote_granted=reply.is_granted,
            )
            return raft.VoteResponse(
                error_code=_top_level(error),
                topics=[raft.VoteResponseTopicData(topic_name=TOPIC, partitions=[vote])],
                node_endpoints=endpoints,
            )
        case core.EpochReply(error=error):
            part = raft.BeginQuorumEpochResponsePartitionData(
                partition_index=PARTITION,
                error_code=error,
                leader_id=leader_id,
                leader_epoch=leadership.epoch,
            )
            topics = [raft.BeginQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=[part])]
            kind = (
                raft.BeginQuorumEpochResponse
                if isinstance(request, raft.BeginQuorumEpochRequest)
                else raft.EndQuorumEpochResponse
            )
            return kind(error_code=_top_level(error), topics=topics, node_endpoints=endpoints)
        case core.FetchReply(error=error):
            data = fetch.PartitionData(
                partition_index=PARTITION,
                error_code=error,
                high_watermark=reply.high_watermark,
                log_start_offset=reply.log_start,
                current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leadership.epoch),
                aborted_transactions=None,
                records=filled.data,
            )
            if reply.diverging is not None:
                data.diverging_epoch = fetch.EpochEndOffset(
                    epoch=reply.diverging.epoch, end_offset=reply.diverging.offset
                )
            if reply.snapshot_id is not None:
                data.snapshot_id = fetch.SnapshotId(
                    end_offset=reply.snapshot_id.offset, epoch=reply.snapshot_id.epoch
                )
            return fetch.FetchResponse(
                throttle_time_ms=0,
                error_code=_top_level(error),
                responses=[
                    fetch.FetchableTopicResponse(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data])
                ],
                node_endpoints=[
                    fetch.NodeEndpoint(node_id=e.node_id, host=e.host, port=e.port) for e in endpoints
                ],
            )
        case core.FetchSnapshotReply(error=error):
            piece = raft.FetchSnapshotResponsePartitionSnapshot(
                index=PARTITION,
                error_code=error,
                snapshot_id=_snapshot_id(reply.snapshot_id),
                current_leader=raft.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leadership.epoch),
                size=reply.size,
                position=reply.position,
                unaligned_records=filled.data,
            )
            return raft.FetchSnapshotResponse(
                throttle_time_ms=0,
                error_code=_top_level(error),
                topics=[raft.FetchSnapshotResponseTopicSnapshot(name=TOPIC, partitions=[piece])],
                node_endpoints=endpoints,
            )
        case core.VoterChangeReply(error=error, message=text):
            if isinstance(request, raft.UpdateRaftVoterRequest):
                at = leadership.leader.endpoint if leadership.leader else Endpoint("", "", 0)
                return raft.UpdateRaftVoterResponse(
                    throttle_time_ms=0,
                    error_code=error,
                    current_leader=raft.CurrentLeader(
                        leader_id=leader_id, leader_epoch=leadership.epoch, host=at.host, port=at.port
                    ),
                )
            if isinstance(request, raft.AddRaftVoterRequest):
                return raft.AddRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=text)
            return raft.RemoveRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=text)
        case core.DescribeReply(error=error):
            has_directories = version >= _DESCRIBES_DIRECTORIES
            partition = raft.DescribeQuorumResponsePartitionData(
                partition_index=PARTITION,
                error_code=error,
                leader_id=leader_id,
                leader_epoch=leadership.epoch,
                high_watermark=reply.high_watermark,
                current_voters=[
                    _replica_state(each, now_wall_ms, has_directory=has_directories) for each in reply.voters
                ],
                observers=[
                    _replica_state(each, now_wall_ms, has_directory=has_directories)
                    for each in reply.observers
                ],
            )
            return raft.DescribeQuorumResponse(
                error_code=ErrorCode.NONE,
                topics=[raft.DescribeQuorumResponseTopicData(topic_name=TOPIC, partitions=[partition])],
                nodes=[
                    raft.Node(node_id=node_id, listeners=_listeners(endpoints))
                    for node_id, endpoints in reply.nodes
                    if has_directories
                ],
            )


def reply_from_wire(response: wire.Response) -> core.Reply:
    """A response as it was sent; its bytes are copied, since the buffer they lie in is used again."""
    match response:
        case raft.VoteResponse():
            vote = _only(_only(response.topics).partitions)
            error = ErrorCode(response.error_code or vote.error_code)
            leadership = _leadership(vote.leader_id, vote.leader_epoch, response.node_endpoints)
            return core.VoteReply(error, leadership, vote.vote_granted)
        case raft.BeginQuorumEpochResponse() | raft.EndQuorumEpochResponse():
            part = _only(_only(response.topics).partitions)
            error = ErrorCode(response.error_code or part.error_code)
            return core.EpochReply(
                error, _leadership(part.leader_id, part.leader_epoch, response.node_endpoints)
            )
        case fetch.FetchResponse():
            data = _only(_only(response.responses).partitions)
            leader = data.current_leader
            diverging, snapshot = data.diverging_epoch, data.snapshot_id
            return core.FetchReply(
                ErrorCode(response.error_code or data.error_code),
                _leadership(leader.leader_id, leader.leader_epoch, response.node_endpoints),
                Offset(data.high_watermark),
                Offset(data.log_start_offset),
                diverging=OffsetAndEpoch(Offset(diverging.end_offset), Epoch(diverging.epoch))
                if diverging.epoch >= 0
                else None,
                snapshot_id=_place(snapshot) if snapshot.epoch >= 0 else None,
                records=_copied(data.records),
            )
        case raft.FetchSnapshotResponse():
            piece = _only(_only(response.topics).partitions)
            current = piece.current_leader
            return core.FetchSnapshotReply(
                ErrorCode(response.error_code or piece.error_code),
                _leadership(current.leader_id, current.leader_epoch, response.node_endpoints),
                _place(piece.snapshot_id),
                piece.size,
                piece.position,
                _copied(piece.unaligned_records),
            )
        case raft.AddRaftVoterResponse() | raft.RemoveRaftVoterResponse():
            return core.VoterChangeReply(
                ErrorCode(response.error_code), core.UNKNOWN_LEADERSHIP, response.error_message
            )
        case raft.UpdateRaftVoterResponse(current_leader=at):
            endpoints = [raft.NodeEndpoint(node_id=at.leader_id, host=at.host, port=at.port)]
            return core.VoterChangeReply(
                ErrorCode(response.error_code), _leadership(at.leader_id, at.leader_epoch, endpoints)
            )
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(response).__name__} is not from the quorum.")


def _top_level(error: ErrorCode) -> ErrorCode:
    """What concerns the whole request stands at the top as well."""
    return error if error is ErrorCode.INCONSISTENT_CLUSTER_ID else ErrorCode.NONE


def _leadership(
    leader_id: int, epoch: int, endpoints: Sequence[raft.NodeEndpoint] | Sequence[fetch.NodeEndpoint]
) -> core.Leadership:
    places = [Endpoint(LISTENER, e.host, e.port) for e in endpoints if e.node_id == leader_id >= 0]
    return core.Leadership(Epoch(epoch), Peer(NodeId(leader_id), places[0]) if places else None)


def _copied(data: Bytes | None) -> bytes:
    if data is None:
        return b""
    assert isinstance(data, bytes | bytearray | memoryview), "what was received lies in memory"
    return bytes(data)


def _replica_state(
    progress: core.ReplicaProgress, now_wall_ms: int, *, has_directory: bool
) -> raft.ReplicaState:
    def at(age_ms: int | None) -> int:
        return -1 if age_ms is None else now_wall_ms - age_ms

    return raft.ReplicaState(
        replica_id=progress.key.node_id,
        replica_directory_id=progress.key.directory_id if has_directory else ZERO_UUID,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=at(progress.since_fetch_ms),
        last_caught_up_timestamp=at(progress.since_caught_up_ms),
    )
