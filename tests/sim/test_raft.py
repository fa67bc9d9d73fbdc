"""Quorums in the simulator: random seeds, plots without chance, and mutants that must be caught."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from mutants import (
    raft_acknowledged_before_flush,
    raft_older_epoch_committed,
    raft_snapshot_off_by_one,
    raft_truncated_to_high_watermark,
    raft_vote_not_flushed,
)
from sim.quorums import ToldQuorum, applied_by, leads

from moldau.sim.run import Violation, play

SEEDS = 200
SEEDS_AT_ONCE = 5


def must_hold(seed: int) -> None:
    outcome = play("raft", seed)
    assert outcome.is_ok, f"{outcome.failure_detail}\nAgain: moldau sim --scenario raft --seed {seed}"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
def test_everything_holds_under_random_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        must_hold(seed)


def test_a_seed_replays_exactly() -> None:
    assert play("raft", 3).digest == play("raft", 3).digest


# ---------------------------------------------------------------- without chance


def test_a_power_cut_of_all_loses_nothing_that_was_acknowledged() -> None:
    with ToldQuorum(3) as quorum:
        values = quorum.accept(quorum.elect(), 5)
        for replica in quorum.replicas:
            quorum.power_cut(replica)
        for replica in quorum.replicas:
            quorum.start(replica)
        leader = quorum.elect()
        quorum.accept(leader)
        assert leader.machine.values[:5] == values


def test_a_replica_that_was_away_for_long_comes_back_through_a_snapshot() -> None:
    with ToldQuorum(3, snapshot_records=10) as quorum:
        leader = quorum.elect()
        away = quorum.others(leader)[0]
        quorum.power_cut(away)
        for _ in range(10):
            quorum.accept(leader, 4)
        assert leader.node is not None
        assert leader.node.view.start_offset > 0
        quorum.start(away)
        quorum.run_until(lambda: applied_by(away) == applied_by(leader))
        assert away.node is not None
        assert away.node.view.start_offset > 0
        assert away.machine.values == leader.machine.values


def test_a_node_whose_disk_fails_stops_and_the_others_go_on() -> None:
    with ToldQuorum(3) as quorum:
        leader = quorum.elect()
        quorum.cluster.nodes[leader.name].disk.fail("fsync")
        quorum.propose(leader)
        quorum.run_until(lambda: not quorum.cluster.nodes[leader.name].is_alive)
        leader.node = None
        quorum.accept(quorum.elect(*quorum.others(leader)))


def test_what_a_failed_flush_left_in_the_page_cache_is_durable_before_it_is_committed() -> None:
    with ToldQuorum(1) as quorum:
        (replica,) = quorum.replicas
        quorum.accept(quorum.elect())
        node = quorum.cluster.nodes[replica.name]
        node.disk.fail("fsync", path="__cluster_metadata-0/00000000000000000000.log")
        (value,) = quorum.propose(replica)
        quorum.run_until(lambda: not node.is_alive)
        # The process comes back, the machine was never off: it reads what the disk does not have.
        replica.node = None
        quorum.start(replica)
        quorum.accept(quorum.elect())
        assert value in replica.machine.values
        quorum.power_cut(replica)
        quorum.start(replica)
        quorum.accept(quorum.elect())
        assert value in replica.machine.values


# ---------------------------------------------------------------- plots that catch one mutant each


def vote_twice(quorum: ToldQuorum) -> None:
    """All lose power after an election; the first leader stays down while the others elect again."""
    first = quorum.elect()
    for replica in quorum.replicas:
        quorum.power_cut(replica)
    others = quorum.others(first)
    for replica in others:
        quorum.start(replica)
    quorum.accept(quorum.elect(*others))


def commit_an_older_epoch(quorum: ToldQuorum) -> None:
    """Figure 8: an old record reaches a majority, its leader dies, and a newer log without it wins."""
    old = quorum.elect()
    quorum.run_until(lambda: all(applied_by(replica) == 1 for replica in quorum.replicas))
    quorum.isolate(old)
    # More than one fetch carries, so that the record that proves the new epoch comes later.
    quorum.propose(old, 300)
    quorum.run_until(lambda: old.node is not None and old.node.view.flushed_offset > 300)
    quorum.power_cut(old)
    newer = quorum.elect(*quorum.others(old))
    quorum.isolate(newer)
    quorum.run_until(lambda: newer.node is not None and newer.node.view.flushed_offset == 2)
    quorum.power_cut(newer)
    quorum.cluster.network.heal()
    quorum.start(old)
    quorum.elect(old)
    quorum.run_until(lambda: applied_by(old) > 300)
    quorum.isolate(old)
    quorum.power_cut(old)
    quorum.cluster.network.heal()
    quorum.start(newer)
    quorum.accept(quorum.elect(*quorum.others(old)), 2)


def lose_power_before_the_flush(quorum: ToldQuorum) -> None:
    """Slow disks, and a power cut everywhere as soon as a value is acknowledged, if it is."""
    leader = quorum.elect()
    quorum.run_until(lambda: all(applied_by(replica) == 1 for replica in quorum.replicas))
    # Flushes that are under way would hold up the next ones, once they are slow.
    quorum.cluster.run_for(100)
    for node in quorum.cluster.nodes.values():
        node.disk.flush_ms = (200, 200)
    (value,) = quorum.propose(leader)
    quorum.cluster.run_until(lambda: value in quorum.ledger.acknowledged, timeout_ms=100)
    for replica in quorum.replicas:
        quorum.power_cut(replica)
        quorum.cluster.nodes[replica.name].disk.flush_ms = (0, 5)
    for replica in quorum.replicas:
        quorum.start(replica)
    quorum.accept(quorum.elect(), 2)


def follow_the_same_leader_again(quorum: ToldQuorum) -> None:
    """A value is committed on two of three; the follower does not hear of that, and loses its leader."""
    leader = quorum.elect()
    quorum.run_until(lambda: all(applied_by(replica) == 1 for replica in quorum.replicas))
    follower, behind = quorum.others(leader)
    quorum.isolate(behind)
    (value,) = quorum.propose(leader)
    quorum.run_until(lambda: value in quorum.ledger.acknowledged)
    quorum.isolate(leader)
    quorum.power_cut(leader)
    # Long enough to stand for election in vain, and to return to the leader that it knows.
    quorum.cluster.run_for(3_000)
    quorum.cluster.network.heal()
    quorum.accept(quorum.elect(follower, behind))


def restart_from_a_snapshot(quorum: ToldQuorum) -> None:
    """A lone voter takes a snapshot, restarts from it and goes on."""
    leader = quorum.elect()
    quorum.accept(leader, 10)
    quorum.run_until(lambda: leader.node is not None and leader.node.view.start_offset > 0)
    quorum.power_cut(leader)
    quorum.start(leader)
    quorum.accept(quorum.elect())


Mutant = Callable[[], AbstractContextManager[None]]
Plot = Callable[[ToldQuorum], None]

PLOTS: dict[str, tuple[Mutant, Plot, int]] = {
    "vote not flushed": (raft_vote_not_flushed.applied, vote_twice, 3),
    "older epoch committed": (raft_older_epoch_committed.applied, commit_an_older_epoch, 3),
    "acknowledged before flush": (raft_acknowledged_before_flush.applied, lose_power_before_the_flush, 3),
    "truncated to the high watermark": (
        raft_truncated_to_high_watermark.applied,
        follow_the_same_leader_again,
        3,
    ),
    "snapshot off by one": (raft_snapshot_off_by_one.applied, restart_from_a_snapshot, 1),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_mutant_is_caught_by_its_plot(name: str) -> None:
    mutant, plot, voter_count = PLOTS[name]
    with mutant(), ToldQuorum(voter_count, snapshot_records=10) as quorum, pytest.raises(Violation):
        plot(quorum)


@pytest.mark.parametrize("name", PLOTS)
def test_nothing_is_wrong_with_the_plot_itself(name: str) -> None:
    _, plot, voter_count = PLOTS[name]
    with ToldQuorum(voter_count, snapshot_records=10) as quorum:
        plot(quorum)
        assert any(leads(replica) for replica in quorum.replicas)
