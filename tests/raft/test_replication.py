"""What is committed, and how a log that went astray is brought back."""

import pytest
from raft.replicas import CLUSTER, MemoryLog, Post, Replica, batch_of, three, voter, voters

from moldau.model.errors import ErrorCode
from moldau.model.ids import Epoch, NodeId, Offset
from moldau.raft.events import (
    Answered,
    AppendAsFollower,
    Asked,
    Committed,
    ElectionState,
    Gone,
    ProposalCommitted,
    ProposalRefused,
    ProposalUncertain,
    Proposed,
    Tick,
    Truncate,
)
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import BeginEpoch, Describe, DescribeReply, Fetch, FetchReply, Leadership
from moldau.raft.quorum import QuorumBroken, Timing
from moldau.raft.roles import Follower, Leader


def fetch(
    replica: int,
    epoch: int,
    offset: int,
    last_epoch: int,
    *,
    wait_ms: int = 500,
    high_watermark: int = 2**63 - 1,
) -> Fetch:
    return Fetch(
        CLUSTER,
        voter(replica).key,
        Epoch(epoch),
        Offset(offset),
        Epoch(last_epoch),
        wait_ms,
        1_000_000,
        Offset(high_watermark),
    )


def test_what_a_majority_has_flushed_is_committed_and_told_to_everybody() -> None:
    post = three()
    leader = post.elect()
    token = post.propose(leader, b"a")
    assert ProposalCommitted(token, leader.log.end_offset) in leader.outcomes
    post.run_until(lambda: all(r.quorum.committed == leader.log.end_offset for r in post.replicas.values()))
    assert len({tuple(r.log.places()) for r in post.replicas.values()}) == 1


def test_the_leader_counts_itself_only_for_what_it_has_flushed() -> None:
    post = Post(Replica(1, voters(1)))
    leader = post.elect()
    leader.flushes_at_once = False
    token = post.propose(leader, b"a")
    assert leader.quorum.committed == 1
    leader.flush()
    assert leader.quorum.committed == 2
    assert ProposalCommitted(token, Offset(2)) in leader.outcomes


def test_a_follower_asks_for_more_only_after_it_has_flushed_what_it_got() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    post.run_until(lambda: follower.quorum.committed == leader.log.end_offset)
    follower.flushes_at_once = False
    post.propose(leader, b"a")
    assert follower.log.end_offset > follower.log.flushed_offset
    assert follower.sent == []
    assert isinstance(leader.quorum.role, Leader)
    assert leader.quorum.role.progress[follower.me.key].end_offset == follower.log.flushed_offset
    follower.flush()
    (sent,) = follower.sent
    assert isinstance(sent.request, Fetch)
    assert sent.request.offset == follower.log.end_offset


def test_a_record_of_an_older_epoch_is_not_committed_by_being_on_a_majority() -> None:
    # Figure 8 of the Raft paper: the record may still be overwritten until one of the own epoch is committed.
    log = MemoryLog()
    log.append(batch_of(b"old"), Epoch(2))
    log.flushed_offset = Offset(1)
    post = Post(
        Replica(1, voters(1, 2), log=log, election=ElectionState(Epoch(2))),
        Replica(2, voters(1, 2), election=ElectionState(Epoch(2))),
    )
    leader = post.elect_without_fetches(1)
    epoch = leader.quorum.epoch
    leader.step(Asked(1001, fetch(2, epoch, offset=1, last_epoch=2)))
    assert leader.quorum.committed == 0
    leader.step(Asked(1002, fetch(2, epoch, offset=2, last_epoch=epoch)))
    assert leader.quorum.committed == 2


def test_a_fetch_waits_for_records_and_is_answered_when_they_come() -> None:
    post = three()
    leader = post.elect()
    end = leader.log.end_offset
    leader.step(Asked(99, fetch(9, leader.quorum.epoch, end, leader.quorum.epoch)))
    assert 99 not in leader.replies
    leader.step(Proposed(1, batch_of(b"a"), 1))
    reply = leader.replies[99]
    assert isinstance(reply, FetchReply)
    assert reply.records


def test_a_fetch_that_waited_long_enough_is_answered_with_nothing() -> None:
    post = three()
    leader = post.elect()
    request = fetch(9, leader.quorum.epoch, leader.log.end_offset, leader.quorum.epoch, wait_ms=300)
    leader.step(Asked(99, request), post.now_ms)
    leader.step(Tick(), post.now_ms + 299)
    assert 99 not in leader.replies
    leader.step(Tick(), post.now_ms + 300)
    assert leader.replies[99] == FetchReply(
        ErrorCode.NONE,
        Leadership(leader.quorum.epoch, leader.me.peer),
        leader.quorum.committed,
        Offset(0),
        records=b"",
    )


def test_a_replica_that_does_not_know_the_high_watermark_is_told_at_once() -> None:
    post = three()
    leader = post.elect()
    epoch, end = leader.quorum.epoch, leader.log.end_offset
    leader.step(Asked(99, fetch(9, epoch, end, epoch, high_watermark=end - 1)))
    reply = leader.replies[99]
    assert isinstance(reply, FetchReply)
    assert reply.high_watermark == end


def test_a_fetch_whose_asker_has_left_is_forgotten() -> None:
    post = three()
    leader = post.elect()
    leader.step(Asked(99, fetch(9, leader.quorum.epoch, leader.log.end_offset, leader.quorum.epoch)))
    leader.step(Gone(99))
    leader.step(Proposed(1, batch_of(b"a"), 1))
    assert 99 not in leader.replies


def test_a_deposed_leader_drops_what_was_never_committed() -> None:
    post = three()
    old = post.elect()
    post.cut_off = {old.me.key.node_id}
    token = post.propose(old, b"lost")
    new = post.elect()
    post.propose(new, b"kept")
    assert ProposalUncertain(token) in old.outcomes
    post.cut_off = set()
    post.run_until(
        lambda: old.log.places() == new.log.places() and old.quorum.committed == new.log.end_offset
    )
    assert b"lost" not in b"".join(old.log.batches)


def test_divergence_is_answered_with_the_end_of_the_last_common_epoch() -> None:
    log = MemoryLog()
    for epoch in (1, 1, 3, 3):
        log.append(batch_of(b"x"), Epoch(epoch))
    leader = Post(Replica(1, voters(1), log=log, election=ElectionState(Epoch(5)))).elect()
    assert leader.log.places()[-1] == (4, 6)
    for (offset, last_epoch), diverging in {
        (2, 1): None,
        (3, 1): OffsetAndEpoch(Offset(2), Epoch(1)),
        (4, 2): OffsetAndEpoch(Offset(2), Epoch(1)),
        (5, 3): OffsetAndEpoch(Offset(4), Epoch(3)),
        (9, 5): OffsetAndEpoch(Offset(4), Epoch(3)),
        (9, 6): OffsetAndEpoch(Offset(5), Epoch(6)),
        (5, 6): None,
    }.items():
        leader.step(Asked(1, fetch(2, 6, offset, last_epoch, wait_ms=0)))
        reply = leader.replies.pop(1)
        assert isinstance(reply, FetchReply)
        assert reply.diverging == diverging


def follower_with_log(*epochs: int, committed: int = 0) -> Replica:
    """Node 1 follows node 2 in epoch 9, and its first fetch is under way."""
    follower = Replica(1, voters(1, 2, 3), election=ElectionState(Epoch(8)))
    for epoch in epochs:
        follower.log.append(batch_of(b"x"), Epoch(epoch))
    follower.log.flushed_offset = follower.log.end_offset
    follower.quorum.committed = Offset(committed)
    follower.step(Asked(1, BeginEpoch(CLUSTER, voter(1).key, Epoch(9), voter(2).peer)))
    return follower


def answer(follower: Replica, reply: FetchReply) -> list[object]:
    sent = follower.sent.pop()
    assert isinstance(sent.request, Fetch)
    return list(follower.step(Answered(sent.request_id, reply)))


LEADS_9 = Leadership(Epoch(9), voter(2).peer)


@pytest.mark.parametrize(
    ("diverging", "end"),
    [((2, 1), 2), ((4, 3), 3), ((3, 1), 3), ((9, 2), 3), ((1, 1), 1)],
    ids=["at the leader's end", "at our end", "at the same end", "of an epoch only the leader has", "before"],
)
def test_a_follower_truncates_to_the_point_where_the_logs_part(diverging: tuple[int, int], end: int) -> None:
    follower = follower_with_log(1, 1, 1, 4, 4)
    reply = FetchReply(
        ErrorCode.NONE, LEADS_9, diverging=OffsetAndEpoch(Offset(diverging[0]), Epoch(diverging[1]))
    )
    assert Truncate(Offset(end)) in answer(follower, reply)
    assert follower.log.end_offset == end


def test_a_leader_that_parts_from_what_is_committed_stops_the_node() -> None:
    follower = follower_with_log(1, 1, 4, committed=2)
    reply = FetchReply(ErrorCode.NONE, LEADS_9, diverging=OffsetAndEpoch(Offset(1), Epoch(1)))
    with pytest.raises(QuorumBroken, match="committed"):
        answer(follower, reply)
    assert follower.log.end_offset == 3


def test_a_follower_believes_the_high_watermark_no_further_than_its_own_log() -> None:
    follower = follower_with_log(1)
    source = MemoryLog()
    source.append(batch_of(b"x"), Epoch(1))
    source.append(batch_of(b"y"), Epoch(9))
    reply = FetchReply(ErrorCode.NONE, LEADS_9, Offset(50), Offset(0), records=source.batches[1])
    effects = answer(follower, reply)
    assert Committed(Offset(2)) in effects
    assert follower.commits == [2]


def test_a_high_watermark_never_goes_back() -> None:
    follower = follower_with_log(1, 1, committed=2)
    answer(follower, FetchReply(ErrorCode.NONE, LEADS_9, Offset(1), Offset(0)))
    assert follower.quorum.committed == 2
    assert follower.commits == []


@pytest.mark.parametrize("damage", ["a gap", "a flipped bit", "a cut"])
def test_damaged_batches_are_not_appended(damage: str) -> None:
    follower = follower_with_log(1)
    source = MemoryLog(start_offset=Offset(2 if damage == "a gap" else 1))
    source.append(batch_of(b"y"), Epoch(9))
    records = bytearray(source.batches[0])
    if damage == "a flipped bit":
        records[-1] ^= 1
    if damage == "a cut":
        del records[-1]
    effects = answer(
        follower, FetchReply(ErrorCode.NONE, LEADS_9, Offset(2), Offset(0), records=bytes(records))
    )
    assert not [effect for effect in effects if isinstance(effect, AppendAsFollower | Committed)]


def test_a_follower_does_not_take_proposals() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    token = post.propose(follower, b"a")
    assert ProposalRefused(token) in follower.outcomes


def test_fetches_in_another_epoch_or_from_another_cluster_are_refused() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    epoch = leader.quorum.epoch
    for replica, asked_epoch, error in (
        (leader, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (leader, epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (follower, epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        replica.step(Asked(1, fetch(9, asked_epoch, 0, 0)))
        reply = replica.replies.pop(1)
        assert isinstance(reply, FetchReply)
        assert (reply.error, reply.leadership) == (error, Leadership(epoch, leader.me.peer))
        assert leader.quorum.epoch == epoch


def test_the_leader_pushes_its_epoch_until_every_voter_fetches() -> None:
    post = three()
    leader = post.elect()
    silent = next(r for r in post.replicas.values() if r is not leader)
    post.cut_off = {silent.me.key.node_id}
    post.run_for(5_000)
    again = silent.restarted()
    again.step(Tick(), post.now_ms)
    again.sent.clear()
    post.replace(again)
    post.cut_off = set()
    post.run_until(lambda: isinstance(again.quorum.role, Follower) and again.quorum.role.has_fetched)
    assert again.quorum.leader == leader.me.peer


def test_an_acknowledged_record_survives_any_one_power_cut_and_a_failover() -> None:
    for victim in (1, 2, 3):
        post = three()
        leader = post.elect()
        token = post.propose(leader, b"kept")
        assert ProposalCommitted(token, leader.log.end_offset) in leader.outcomes
        post.replace(post[victim].restarted())
        post.cut_off = {leader.me.key.node_id}
        new = post.elect()
        assert b"kept" in b"".join(new.log.batches)


def test_the_state_of_the_quorum_can_be_described_by_its_leader_alone() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    for replica, error in ((leader, ErrorCode.NONE), (follower, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        replica.step(Asked(1, Describe()))
        reply = replica.replies.pop(1)
        assert isinstance(reply, DescribeReply)
        assert reply.error is error
        assert reply.leadership.leader == leader.me.peer
        assert [p.key.node_id for p in reply.voters] == ([1, 2, 3] if replica is leader else [])


def test_an_observer_finds_the_leader_through_any_node_and_fetches() -> None:
    post = three()
    leader = post.elect()
    follower = next(r for r in post.replicas.values() if r is not leader)
    observer = Replica(
        9, voters(1, 2, 3), now_ms=post.now_ms, bootstrap=follower.me.endpoints, timing=Timing()
    )
    post.replace(observer)
    post.propose(leader, b"a")
    post.run_until(lambda: observer.quorum.committed == leader.log.end_offset)
    assert observer.log.places() == leader.log.places()
    assert NodeId(9) not in [v.key.node_id for v in leader.quorum.voters.latest.voters]
