"""The quorum's words survive the wire, in Kafka's own messages."""

from collections.abc import Iterable

import pytest
from raft.replicas import CLUSTER, voter

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import Epoch, NodeId, Offset
from moldau.node.quorum_wire import VERSIONS, Filled, from_wire, reply_from_wire, reply_to_wire, to_wire
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import (
    UNKNOWN_LEADERSHIP,
    AddVoter,
    BeginEpoch,
    Describe,
    DescribeReply,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Leadership,
    RemoveVoter,
    ReplicaProgress,
    Reply,
    Request,
    UpdateVoter,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from moldau.wire.framing import Frame, Requests, encode_response, read_request
from moldau.wire.framing import Request as FramedRequest
from moldau.wire.messages import raft
from moldau.wire.messages.raft import DescribeQuorumResponse

PLACE = OffsetAndEpoch(Offset(2**31 + 5), Epoch(2**31 - 2))
LEADS = Leadership(Epoch(7), voter(2).peer)
ME, OTHER = voter(1).key, voter(2).key

REQUESTS: list[Request] = [
    Vote(CLUSTER, OTHER, ME, Epoch(7), PLACE, is_pre_vote=True),
    Vote(None, OTHER, ME, Epoch(7), PLACE, is_pre_vote=False),
    BeginEpoch(CLUSTER, OTHER, Epoch(7), voter(1).peer),
    EndEpoch(CLUSTER, Epoch(7), NodeId(1), (OTHER, voter(3).key)),
    Fetch(CLUSTER, ME, Epoch(7), PLACE.offset, PLACE.epoch, 500, 1000, Offset(12)),
    FetchSnapshot(CLUSTER, ME, Epoch(7), PLACE, 2**33, 1000),
    AddVoter(CLUSTER, voter(3), is_acknowledged_when_committed=False),
    RemoveVoter(CLUSTER, OTHER),
    UpdateVoter(CLUSTER, Epoch(7), voter(3)),
    Describe(),
]

REPLIES: list[tuple[Request, Reply]] = [
    (REQUESTS[0], VoteReply(ErrorCode.NONE, LEADS, is_granted=True)),
    (REQUESTS[0], VoteReply(ErrorCode.INCONSISTENT_CLUSTER_ID, UNKNOWN_LEADERSHIP)),
    (REQUESTS[2], EpochReply(ErrorCode.FENCED_LEADER_EPOCH, LEADS)),
    (REQUESTS[3], EpochReply(ErrorCode.NONE, Leadership(Epoch(7)))),
    (REQUESTS[4], FetchReply(ErrorCode.NONE, LEADS, Offset(9), Offset(2), records=b"batches")),
    (REQUESTS[4], FetchReply(ErrorCode.NONE, LEADS, Offset(9), Offset(2), diverging=PLACE)),
    (REQUESTS[4], FetchReply(ErrorCode.NONE, LEADS, Offset(9), Offset(2), snapshot_id=PLACE)),
    (REQUESTS[4], FetchReply(ErrorCode.UNKNOWN_LEADER_EPOCH, Leadership(Epoch(3)))),
    (REQUESTS[5], FetchSnapshotReply(ErrorCode.NONE, LEADS, PLACE, 2**34, 2**33, b"piece")),
    (REQUESTS[5], FetchSnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND, LEADS, PLACE)),
    (REQUESTS[6], VoterChangeReply(ErrorCode.DUPLICATE_VOTER, UNKNOWN_LEADERSHIP, "It is there.")),
    (REQUESTS[7], VoterChangeReply(ErrorCode.NONE, UNKNOWN_LEADERSHIP)),
    (REQUESTS[8], VoterChangeReply(ErrorCode.FENCED_LEADER_EPOCH, LEADS)),
    (REQUESTS[8], VoterChangeReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, Leadership(Epoch(3)))),
]


def joined(chunks: Iterable[object]) -> bytes:
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))


def bytes_of(reply: Reply) -> bytes:
    match reply:
        case FetchReply(records=bytes(data)) | FetchSnapshotReply(data=bytes(data)):
            return data
    return b""


def sent(request: Request) -> FramedRequest:
    """A request as its receiver finds it in a frame."""
    wire = to_wire(request)
    data = joined(Requests("test").encode(wire, VERSIONS[type(wire)]))
    found = read_request(Frame(data, 4, len(data), is_shared=False))
    assert isinstance(found, FramedRequest)
    return found


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_survives(request_: Request) -> None:
    assert from_wire(sent(request_).body()) == request_


@pytest.mark.parametrize(("request_", "reply"), REPLIES, ids=lambda value: type(value).__name__)
def test_a_reply_survives(request_: Request, reply: Reply) -> None:
    requests = Requests("test")
    wire = to_wire(request_)
    requests.encode(wire, VERSIONS[type(wire)])
    framed = sent(request_)
    response = reply_to_wire(Filled(reply, bytes_of(reply)), wire, version=framed.version, now_wall_ms=0)
    chunks = encode_response(response, api_key=framed.api_key, version=framed.version, correlation_id=0)
    answered = joined(chunks)
    assert reply_from_wire(requests.match(Frame(answered, 4, len(answered), is_shared=False))) == reply


def test_a_description_gives_times_of_the_calendar() -> None:
    progress = ReplicaProgress(OTHER, Offset(5), since_fetch_ms=10, since_caught_up_ms=None)
    nodes = ((NodeId(2), voter(2).endpoints),)
    reply = DescribeReply(ErrorCode.NONE, LEADS, Offset(5), (progress,), (), nodes)
    response = reply_to_wire(Filled(reply), to_wire(Describe()), version=2, now_wall_ms=1000)
    assert isinstance(response, DescribeQuorumResponse)
    (state,) = response.topics[0].partitions[0].current_voters
    assert (state.last_fetch_timestamp, state.last_caught_up_timestamp) == (990, -1)
    assert response.nodes[0].listeners[0].host == "node-2"


def test_a_request_without_its_one_partition_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        from_wire(raft.VoteRequest(topics=[]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
