"""Who leads, and what must be durable before anybody hears of it."""

from dataclasses import replace as copy_of

import pytest
from msgspec.structs import replace
from raft.replicas import CLUSTER, NOTHING, MemoryLog, Post, Replica, batch_of, three, voter, voters

from moldau.model.errors import ErrorCode
from moldau.model.ids import ClusterId, Epoch, NodeId, Offset
from moldau.raft.events import (
    Answered,
    Asked,
    ElectionPersisted,
    ElectionState,
    PersistElection,
    ResignationWanted,
    Tick,
)
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import BeginEpoch, EndEpoch, Leadership, Vote, VoteReply
from moldau.raft.quorum import EPOCH_MAX, QuorumBroken
from moldau.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached


def vote(
    candidate: int, to: int, epoch: int, *, is_pre_vote: bool = False, log_end: OffsetAndEpoch = NOTHING
) -> Vote:
    return Vote(CLUSTER, voter(to).key, voter(candidate).key, Epoch(epoch), log_end, is_pre_vote)


def ask(replica: Replica, request: Vote | BeginEpoch | EndEpoch) -> VoteReply:
    replica.step(Asked(1, request))
    reply = replica.replies.pop(1)
    assert isinstance(reply, VoteReply)
    return reply


def test_a_lone_voter_leads_after_its_vote_is_durable_and_not_before() -> None:
    alone = Replica(1, voters(1))
    alone.persists_at_once = False
    effects = alone.step(Tick(), 0)
    assert alone.quorum.leader is None
    persist = next(effect for effect in effects if isinstance(effect, PersistElection))
    assert persist.state == ElectionState(Epoch(1), None, voter(1).key)
    alone.step(ElectionPersisted(persist.state))
    assert isinstance(alone.quorum.role, Leader)


def test_a_lone_voter_commits_through_the_same_code() -> None:
    alone = Post(Replica(1, voters(1)))
    leader = alone.elect()
    alone.propose(leader, b"a")
    assert leader.quorum.committed == 2


def test_three_voters_elect_one_leader_and_the_others_follow_it() -> None:
    post = three()
    leader = post.elect()
    followers = [r for r in post.replicas.values() if r is not leader]
    assert all(isinstance(r.quorum.role, Follower) for r in followers)
    assert all(r.quorum.leader == leader.me.peer for r in followers)


def test_no_vote_leaves_before_it_is_durable() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.persists_at_once = False
    effects = replica.step(Asked(7, vote(2, 1, epoch=5)))
    assert [effect for effect in effects if isinstance(effect, PersistElection)] == [
        PersistElection(ElectionState(Epoch(5), None, voter(2).key))
    ]
    assert replica.replies == {}
    replica.step(ElectionPersisted(ElectionState(Epoch(5), None, voter(2).key)))
    reply = replica.replies[7]
    assert isinstance(reply, VoteReply) and reply.is_granted


def test_a_vote_request_leaves_only_after_the_candidates_own_vote_is_durable() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.step(Tick())
    pre_votes = list(replica.sent)
    replica.persists_at_once = False
    replica.step(Answered(pre_votes[0].request_id, VoteReply(ErrorCode.NONE, Leadership(Epoch(0)), True)))
    assert isinstance(replica.quorum.role, Candidate)
    assert replica.sent == pre_votes
    replica.step(ElectionPersisted(ElectionState(Epoch(1), None, voter(1).key)))
    asked = [sent.request for sent in replica.sent[len(pre_votes) :]]
    assert [request.is_pre_vote for request in asked if isinstance(request, Vote)] == [False, False]


def test_a_replica_votes_once_in_an_epoch_even_after_a_restart() -> None:
    replica = Replica(1, voters(1, 2, 3))
    assert ask(replica, vote(2, 1, epoch=5)).is_granted
    assert not ask(replica, vote(3, 1, epoch=5)).is_granted
    again = replica.restarted()
    assert not ask(again, vote(3, 1, epoch=5)).is_granted
    assert ask(again, vote(2, 1, epoch=5)).is_granted


def test_a_candidate_with_an_older_log_gets_no_vote() -> None:
    log = MemoryLog()
    log.append(batch_of(b"a"), Epoch(3))
    log.append(batch_of(b"b"), Epoch(3))
    for log_end, is_granted in (
        (OffsetAndEpoch(Offset(1), Epoch(3)), False),
        (OffsetAndEpoch(Offset(9), Epoch(2)), False),
        (OffsetAndEpoch(Offset(2), Epoch(3)), True),
        (OffsetAndEpoch(Offset(1), Epoch(4)), True),
    ):
        for is_pre_vote in (True, False):
            replica = Replica(1, voters(1, 2, 3), log=copy_of(log), election=ElectionState(Epoch(3)))
            request = vote(2, 1, epoch=5, is_pre_vote=is_pre_vote, log_end=log_end)
            assert ask(replica, request).is_granted is is_granted


def test_a_pre_vote_changes_nothing_on_disk() -> None:
    replica = Replica(1, voters(1, 2, 3))
    assert ask(replica, vote(2, 1, epoch=0, is_pre_vote=True)).is_granted
    assert replica.on_disk == ElectionState()


def test_a_follower_with_a_leader_that_works_refuses_pre_votes() -> None:
    post = three()
    leader = post.elect()
    follower, other = (r for r in post.replicas.values() if r is not leader)
    log_end = OffsetAndEpoch(Offset(100), Epoch(100))
    request = vote(
        other.me.key.node_id,
        follower.me.key.node_id,
        epoch=leader.quorum.epoch,
        is_pre_vote=True,
        log_end=log_end,
    )
    assert not ask(follower, request).is_granted


def test_a_replica_that_was_cut_off_does_not_raise_the_epoch_when_it_returns() -> None:
    post = three()
    leader = post.elect()
    epoch = leader.quorum.epoch
    lost = next(r for r in post.replicas.values() if r is not leader)
    post.cut_off = {lost.me.key.node_id}
    post.run_for(30_000)
    post.cut_off = set()
    post.run_until(lambda: isinstance(lost.quorum.role, Follower) and lost.quorum.role.has_fetched)
    assert lost.quorum.epoch == epoch
    assert post.leader() is leader


def test_a_leader_that_hears_no_majority_resigns_and_the_majority_elects_another() -> None:
    post = three()
    old = post.elect()
    post.cut_off = {old.me.key.node_id}
    new = post.elect()
    assert new is not old
    assert not isinstance(old.quorum.role, Leader)


def test_a_leader_that_resigns_names_the_most_caught_up_voter_who_stands_at_once() -> None:
    post = three()
    leader = post.elect()
    slow, fast = (r for r in post.replicas.values() if r is not leader)
    post.cut_off = {slow.me.key.node_id}
    post.propose(leader, b"a")
    post.run_until(lambda: leader.quorum.committed == leader.log.end_offset)
    post.cut_off = set()
    before_ms = post.now_ms
    leader.step(ResignationWanted())
    assert isinstance(leader.quorum.role, Resigned)
    assert leader.quorum.role.successors[0] == fast.me.key
    post.deliver()
    post.run_until(lambda: post.leader() is not None)
    assert post.leader() is fast
    assert post.now_ms - before_ms < 100


def test_a_restarted_leader_does_not_lead_the_same_epoch_again() -> None:
    post = three()
    leader = post.elect()
    again = leader.restarted()
    assert isinstance(again.quorum.role, Resigned)
    post.replace(again)
    epoch = leader.quorum.epoch
    assert post.elect().quorum.epoch > epoch


def test_an_older_epoch_is_fenced() -> None:
    replica = Replica(1, voters(1, 2, 3), election=ElectionState(Epoch(5)))
    assert ask(replica, vote(2, 1, epoch=4)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_vote_meant_for_another_directory_or_cluster_is_refused() -> None:
    replica = Replica(1, voters(1, 2, 3))
    other_disk = replace(vote(2, 1, epoch=1), voter=voter(1, directory=1).key)
    assert ask(replica, other_disk).error is ErrorCode.INVALID_VOTER_KEY
    other_cluster = replace(vote(2, 1, epoch=1), cluster_id=ClusterId("another"))
    reply = ask(replica, other_cluster)
    assert reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert replica.quorum.epoch == 0
    assert ask(replica, replace(vote(2, 1, epoch=1), cluster_id=None)).error is ErrorCode.NONE


def test_two_leaders_of_one_epoch_stop_the_node() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.step(Asked(1, BeginEpoch(CLUSTER, voter(1).key, Epoch(4), voter(2).peer)))
    with pytest.raises(QuorumBroken, match="two leaders"):
        replica.step(Asked(2, BeginEpoch(CLUSTER, voter(1).key, Epoch(4), voter(3).peer)))


def test_replies_to_an_election_that_is_over_are_ignored() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.step(Tick())
    pre_vote = replica.sent[0]
    replica.step(Asked(1, BeginEpoch(CLUSTER, voter(1).key, Epoch(4), voter(2).peer)))
    replica.step(Answered(pre_vote.request_id, VoteReply(ErrorCode.NONE, Leadership(Epoch(0)), True)))
    assert isinstance(replica.quorum.role, Follower)


def test_the_last_epoch_there_can_be_is_not_passed() -> None:
    alone = Replica(1, voters(1), election=ElectionState(EPOCH_MAX))
    alone.step(Tick())
    assert isinstance(alone.quorum.role, Prospective)


def test_a_voter_without_a_majority_keeps_asking_and_never_raises_its_epoch() -> None:
    replica = Replica(1, voters(1, 2, 3))
    post = Post(replica)
    post.run_for(30_000)
    assert replica.quorum.epoch == 0
    assert replica.on_disk == ElectionState()


def test_the_end_of_an_epoch_lets_the_second_successor_wait_for_the_first() -> None:
    replica = Replica(3, voters(1, 2, 3))
    replica.step(Asked(1, BeginEpoch(CLUSTER, voter(3).key, Epoch(4), voter(1).peer)))
    successors = (voter(2).key, voter(3).key)
    replica.step(Asked(2, EndEpoch(CLUSTER, Epoch(4), NodeId(1), successors)))
    role = replica.quorum.role
    assert isinstance(role, Unattached)
    assert replica.now_ms < role.deadline_ms < replica.now_ms + 1000


def test_a_split_vote_is_repeated_at_different_times() -> None:
    post = Post(*(Replica(node_id, voters(1, 2, 3, 4)) for node_id in (1, 2, 3, 4)))
    leader = post.elect()
    assert leader.quorum.epoch > 1, "all four stood at once, so nobody won the first epoch"
    assert isinstance(leader.quorum.role, Leader)
