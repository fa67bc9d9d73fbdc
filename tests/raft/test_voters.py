"""Voters that come and go, one at a time (KIP-853), and snapshots for those that come late."""

import pytest
from raft.replicas import CLUSTER, Post, Replica, batch_of, three, voter, voters

from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.model.ids import ClusterId, Epoch, Offset
from moldau.raft.control import read_voters_record, voter_changes, voters_record
from moldau.raft.events import Asked, ProposalCommitted, SnapshotTaken
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import (
    AddVoter,
    FetchSnapshot,
    FetchSnapshotReply,
    RemoveVoter,
    UpdateVoter,
    VoterChange,
    VoterChangeReply,
)
from moldau.raft.quorum import Timing
from moldau.raft.roles import Follower, Leader, Observer
from moldau.raft.voters import BEFORE_THE_LOG, Endpoint, Voter, VoterHistory, VoterSet


def change(post: Post, replica: Replica, request: VoterChange) -> VoterChangeReply | None:
    """Ask for a change of voters; None while it is not committed."""
    post.tokens += 1
    token = post.tokens
    replica.step(Asked(token, request), post.now_ms)
    post.deliver()
    reply = replica.replies.pop(token, None)
    assert reply is None or isinstance(reply, VoterChangeReply)
    return reply


def with_observer(post: Post, node_id: int, *, timing: Timing | None = None) -> Replica:
    """One more replica that has caught up, and has no vote."""
    leader = post.elect()
    bootstrap = leader.me.endpoints
    observer = Replica(node_id, voters(), now_ms=post.now_ms, bootstrap=bootstrap, timing=timing)
    post.replace(observer)
    post.run_until(lambda: observer.quorum.committed == leader.log.end_offset)
    return observer


def test_a_voter_is_added_once_it_has_caught_up_and_then_counts() -> None:
    post = Post(Replica(1, voters(1)))
    observer = with_observer(post, 2)
    assert not observer.quorum.is_voter
    reply = change(post, post[1], AddVoter(CLUSTER, voter(2)))
    assert reply is not None and reply.error is ErrorCode.NONE
    assert isinstance(observer.quorum.role, Follower)
    post.cut_off = {2}
    token = post.propose(post[1], b"a")
    assert ProposalCommitted(token, post[1].log.end_offset) not in post[1].outcomes


def test_a_voter_that_has_not_caught_up_is_not_added() -> None:
    post = Post(Replica(1, voters(1)))
    post.elect()
    reply = change(post, post[1], AddVoter(CLUSTER, voter(2)))
    assert reply is not None and reply.error is ErrorCode.REQUEST_TIMED_OUT


def test_only_one_change_may_be_uncommitted() -> None:
    post = three()
    leader = post.elect()
    others = [r.me.key for r in post.replicas.values() if r is not leader]
    post.cut_off = {key.node_id for key in others}
    assert change(post, leader, RemoveVoter(CLUSTER, others[0])) is None
    reply = change(post, leader, RemoveVoter(CLUSTER, others[1]))
    assert reply is not None and reply.error is ErrorCode.REQUEST_TIMED_OUT


def test_a_leader_changes_no_voters_before_it_has_committed_in_its_epoch() -> None:
    leader = three().elect_without_fetches(1)
    leader.step(Asked(1, RemoveVoter(CLUSTER, voter(2).key)))
    reply = leader.replies[1]
    assert isinstance(reply, VoterChangeReply)
    assert reply.error is ErrorCode.REQUEST_TIMED_OUT


def test_a_change_that_was_not_committed_goes_with_its_record() -> None:
    post = three()
    old = post.elect()
    removed = next(r.me.key for r in post.replicas.values() if r is not old)
    post.cut_off = {old.me.key.node_id}
    change(post, old, RemoveVoter(CLUSTER, removed))
    assert removed not in old.quorum.voters.latest.keys
    new = post.elect()
    post.cut_off = set()
    post.run_until(lambda: old.log.places() == new.log.places())
    assert old.quorum.voters.latest == new.quorum.voters.latest
    assert removed in old.quorum.voters.latest.keys


def test_a_removed_voter_becomes_an_observer_and_disturbs_nobody() -> None:
    post = three()
    leader = post.elect()
    removed = next(r for r in post.replicas.values() if r is not leader)
    reply = change(post, leader, RemoveVoter(CLUSTER, removed.me.key))
    assert reply is not None and reply.error is ErrorCode.NONE
    assert isinstance(removed.quorum.role, Observer)
    post.run_for(30_000)
    assert post.leader() is leader


def test_a_removed_leader_leads_until_that_is_committed_and_then_resigns() -> None:
    post = three()
    leader = post.elect()
    reply = change(post, leader, RemoveVoter(CLUSTER, leader.me.key))
    assert reply is not None and reply.error is ErrorCode.NONE
    assert not isinstance(leader.quorum.role, Leader)
    new = post.elect()
    assert leader.me.key not in new.quorum.voters.latest.keys
    post.run_until(lambda: isinstance(leader.quorum.role, Observer))
    post.run_until(lambda: leader.quorum.committed == new.log.end_offset)


def test_a_leader_that_is_being_removed_does_not_count_itself() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    post.cut_off = {follower.me.key.node_id}
    assert change(post, leader, RemoveVoter(CLUSTER, leader.me.key)) is None
    assert isinstance(leader.quorum.role, Leader)


def test_a_leader_whose_removal_only_its_own_log_knows_leads_once_more() -> None:
    post = Post(Replica(1, voters(1, 2)), Replica(2, voters(1, 2)))
    old = post.elect()
    other = next(r for r in post.replicas.values() if r is not old)
    post.cut_off = {other.me.key.node_id}
    assert change(post, old, RemoveVoter(CLUSTER, old.me.key)) is None
    post.replace(old.restarted())
    post.cut_off = set()
    post.run_until(lambda: isinstance(other.quorum.role, Leader))
    assert other.quorum.voters.latest == VoterSet.of(other.me)
    post.run_until(lambda: isinstance(post[old.me.key.node_id].quorum.role, Observer))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (AddVoter(CLUSTER, voter(2, directory=1)), ErrorCode.DUPLICATE_VOTER),
        (AddVoter(CLUSTER, Voter(voter(9).key, ())), ErrorCode.INVALID_REQUEST),
        (AddVoter(ClusterId("another"), voter(9)), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (RemoveVoter(CLUSTER, voter(2, directory=1).key), ErrorCode.VOTER_NOT_FOUND),
        (RemoveVoter(CLUSTER, voter(9).key), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoter(CLUSTER, Epoch(0), voter(2)), ErrorCode.FENCED_LEADER_EPOCH),
        (UpdateVoter(CLUSTER, Epoch(99), voter(2)), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_an_impossible_change_is_refused(request_: VoterChange, error: ErrorCode) -> None:
    post = three()
    reply = change(post, post.elect(), request_)
    assert reply is not None and reply.error is error


def test_the_last_voter_stays() -> None:
    post = Post(Replica(1, voters(1)))
    post.elect()
    reply = change(post, post[1], RemoveVoter(CLUSTER, voter(1).key))
    assert reply is not None and reply.error is ErrorCode.INVALID_REQUEST


def test_a_follower_does_not_change_voters() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    reply = change(post, follower, RemoveVoter(CLUSTER, leader.me.key))
    assert reply is not None and reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_voter_can_move_to_another_endpoint() -> None:
    post = three()
    leader = post.elect()
    moved = Voter(voter(2).key, (Endpoint("CONTROLLER", "elsewhere", 1),))
    change(post, leader, UpdateVoter(CLUSTER, leader.quorum.epoch, moved))
    assert leader.quorum.voters.latest.find(voter(2).key.node_id) == moved


def test_a_node_with_a_new_disk_is_not_the_voter_it_was() -> None:
    lost_disk = VoterSet.of(voter(1, directory=1), voter(2))
    replica = Replica(1, VoterHistory(((BEFORE_THE_LOG, lost_disk),)))
    assert not replica.quorum.is_voter
    assert isinstance(replica.quorum.role, Observer)


def test_a_voters_record_survives_the_log() -> None:
    voter_set = VoterSet.of(voter(1), voter(2))
    assert read_voters_record(voters_record(voter_set)) == voter_set
    post = three()
    leader = post.elect()
    change(
        post,
        leader,
        RemoveVoter(CLUSTER, next(v.key for v in leader.quorum.voters.latest.others(leader.me.key))),
    )
    assert list(voter_changes(leader.log.batches[-1])) == [leader.quorum.voters.changes[-1]]
    assert list(voter_changes(batch_of(b"data"))) == []


def test_a_voters_record_that_names_a_voter_twice_is_malformed() -> None:
    twice = VoterSet((voter(1), voter(1)))
    with pytest.raises(MalformedMessage):
        read_voters_record(voters_record(twice))


# ---------------------------------------------------------------- snapshots


def test_a_snapshot_lets_the_log_go_up_to_its_end() -> None:
    post = three()
    leader = post.elect()
    post.propose(leader, b"a")
    snapshot_id = leader.take_snapshot()
    assert leader.log.start_offset == snapshot_id.offset == leader.quorum.committed


def test_a_snapshot_beyond_what_is_committed_is_a_bug() -> None:
    post = three()
    leader = post.elect()
    with pytest.raises(AssertionError):
        leader.step(SnapshotTaken(OffsetAndEpoch(Offset(99), Epoch(1))))


def test_a_replica_behind_the_log_loads_the_snapshot_in_pieces_and_goes_on() -> None:
    post = three()
    leader = post.elect()
    for value in (b"a", b"b", b"c"):
        post.propose(leader, value)
    snapshot_id = leader.take_snapshot()
    post.propose(leader, b"tail")
    late = with_observer(post, 9, timing=Timing(snapshot_bytes_max=10))
    assert late.log.start_offset == snapshot_id.offset
    assert late.log.places() == leader.log.places()
    assert late.quorum.voters.latest == leader.quorum.voters.latest
    assert late.log.snapshots == leader.log.snapshots


def test_a_log_that_ends_in_an_epoch_older_than_the_snapshot_is_replaced_by_it() -> None:
    post = three()
    old = post.elect()
    post.cut_off = {old.me.key.node_id}
    for _ in range(5):
        post.propose(old, b"lost")
    new = post.elect()
    post.propose(new, b"kept")
    snapshot_id = new.take_snapshot()
    assert old.log.end_offset > snapshot_id.offset
    post.cut_off = set()
    post.run_until(lambda: old.quorum.committed == new.log.end_offset)
    assert old.log.start_offset == snapshot_id.offset
    assert b"lost" not in b"".join(old.log.batches)


def test_a_snapshot_that_is_gone_is_looked_for_anew() -> None:
    post = three()
    leader = post.elect()
    post.propose(leader, b"a")
    leader.take_snapshot()
    request = FetchSnapshot(
        CLUSTER, voter(9).key, leader.quorum.epoch, OffsetAndEpoch(Offset(1), Epoch(1)), 0, 100
    )
    leader.step(Asked(1, request))
    reply = leader.replies[1]
    assert isinstance(reply, FetchSnapshotReply)
    assert reply.error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_a_position_beyond_the_snapshot_is_refused() -> None:
    post = three()
    leader = post.elect()
    snapshot_id = leader.take_snapshot()
    size = len(leader.log.snapshots[snapshot_id])
    for position in (-1, size):
        request = FetchSnapshot(CLUSTER, voter(9).key, leader.quorum.epoch, snapshot_id, position, 100)
        leader.step(Asked(1, request))
        reply = leader.replies.pop(1)
        assert isinstance(reply, FetchSnapshotReply)
        assert reply.error is ErrorCode.POSITION_OUT_OF_RANGE
