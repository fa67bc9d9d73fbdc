"""Quorums in the simulator: random seeds, plots without chance, and mutants that must be caught."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from mutants import (
    raft_acknowledged_before_flush,
    raft_older_epoch_committed,
    raft_snapshot_off_by_one,
    raft_truncated_to_high_watermark,
    raft_vote_not_flushed,
)
from sim.quorums import ToldQuorum, ToldReplica, applied_by, leads

from moldau.log import checkpoints
from moldau.log.segment import LOG_SUFFIX, file_name
from moldau.node.quorum_log import PATH, QuorumLog
from moldau.sim.disk import Survives
from moldau.sim.run import Violation, play
from moldau.world.ports import DiskFailed

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


def test_a_lone_voter_leads_though_saving_its_vote_takes_longer_than_an_election_may() -> None:
    with ToldQuorum(1) as quorum:
        (replica,) = quorum.replicas
        quorum.cluster.nodes[replica.name].disk.flush_ms = (4_000, 5_000)
        quorum.elect()


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


# ---------------------------------------------------------------- a metadata log that rots


LOG_FILE = f"{PATH}/{file_name(0, LOG_SUFFIX)}"
RECOVERY_POINT = f"{PATH}/{checkpoints.RECOVERY_POINTS}"


def all_noted(quorum: ToldQuorum, replica: ToldReplica) -> int:
    """Wait until a restart need not doubt anything of the log; gives its end."""
    view = view_of(replica)
    quorum.run_until(lambda: view.recovery_point == view.end_offset)

    def is_durable() -> bool:
        disk = quorum.cluster.nodes[replica.name].disk.crash(Survives.NOTHING)
        return [*checkpoints.read_offsets(disk, RECOVERY_POINT).values()] == [view.end_offset]

    quorum.run_until(is_durable)
    return view.end_offset


def view_of(replica: ToldReplica) -> QuorumLog:
    assert replica.node is not None
    return replica.node.view


def must_refuse_to_start(quorum: ToldQuorum, replica: ToldReplica, why: str) -> None:
    machine = quorum.cluster.nodes[replica.name]
    before = machine.disk.open(LOG_FILE).read(0, machine.disk.open(LOG_FILE).size())
    quorum.start(replica)
    quorum.run_until(lambda: not machine.is_alive)
    assert replica.world is not None
    disk = machine.disk.crash(Survives.EVERYTHING)
    with pytest.raises(DiskFailed, match=why):
        QuorumLog(replace(replica.world, disk=disk), segment_bytes=1_000_000)
    assert disk.open(LOG_FILE).read(0, len(before) + 1) == before, "nothing is cut off"


@pytest.mark.parametrize("position", [8, 16, 40, 65])
@pytest.mark.parametrize("number", [0, 2])
def test_a_metadata_log_that_rots_is_not_cut_off(number: int, position: int) -> None:
    """What was committed may be nowhere else: whoever runs the cluster is told, and decides."""
    with ToldQuorum(1) as quorum:
        leader = quorum.elect()
        first = view_of(leader).end_offset
        for _ in range(3):
            quorum.accept(leader, 2)
        all_noted(quorum, leader)
        (segment,) = view_of(leader).log.segments
        batches = [each for each in segment.batches_from() if each.header.base_offset >= first]
        quorum.power_cut(leader)
        machine = quorum.cluster.nodes[leader.name]
        machine.disk.flip_bit(LOG_FILE, batches[number].position + position, bit=3)
        must_refuse_to_start(
            quorum, leader, f"damaged where it was durable, at offsets {first + 2 * number} "
        )


def test_a_metadata_log_that_has_lost_its_end_is_not_taken_for_a_shorter_one() -> None:
    with ToldQuorum(1) as quorum:
        leader = quorum.elect()
        quorum.accept(leader, 2)
        end = all_noted(quorum, leader)
        quorum.power_cut(leader)
        file = quorum.cluster.nodes[leader.name].disk.open(LOG_FILE)
        file.truncate(file.size() - 1)
        must_refuse_to_start(quorum, leader, f"damaged where it was durable, at offsets {end - 2} to {end}")


def test_what_comes_after_the_recovery_point_may_be_torn() -> None:
    with ToldQuorum(1) as quorum:
        leader = quorum.elect()
        values = quorum.accept(leader, 2)
        end = all_noted(quorum, leader)
        machine = quorum.cluster.nodes[leader.name]
        machine.disk.flush_ms = (5_000, 5_000)
        quorum.propose(leader)
        quorum.run_until(lambda: view_of(leader).end_offset > end)
        machine.power_cut(Survives.EVERYTHING)
        leader.node = None
        file = machine.disk.open(LOG_FILE)
        file.truncate(file.size() - 5)
        machine.disk.flush_ms = (0, 5)
        quorum.start(leader)
        assert view_of(quorum.elect()).end_offset >= end
        quorum.run_until(lambda: leader.machine.values == values)


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
