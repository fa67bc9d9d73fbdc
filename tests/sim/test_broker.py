"""One broker and its clients in the simulator: random seeds, plots without chance, mutants to be caught."""

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from mutants import (
    broker_acknowledged_before_flush,
    broker_checkpoint_in_place,
    broker_cut_at_first_bad_batch,
    broker_epoch_bumped_on_doubt,
    broker_offset_of_the_watermark,
    broker_producers_die_with_segments,
    broker_recovery_not_flushed,
    broker_recovery_point_ahead,
)
from node.broker import CLIENTS, TOPIC
from sim.brokers import AT, EARLIEST, ToldBroker

from moldau.client import open_client
from moldau.client.settings import ClientSettings
from moldau.log import checkpoints
from moldau.model.errors import MalformedMessage
from moldau.sim.checks import Value
from moldau.sim.disk import Operation, SimDisk, Survives
from moldau.sim.run import Violation, play
from moldau.sim.workload import CAREFUL, IMPATIENT
from moldau.world.ports import World

SEEDS = 120
SEEDS_AT_ONCE = 5
# At every operation on a disk would be better, and takes so many times as long.
STRIDE = 4
MANY_SEGMENTS = {"segment.ms": "100", "retention.ms": "-1"}
SOON_DELETED = {"segment.ms": "100", "retention.ms": "700", "file.delete.delay.ms": "100"}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
def test_nothing_is_lost_doubled_or_moved_under_random_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        outcome = play("broker", seed)
        assert outcome.is_ok, f"{outcome.failure_detail}\nAgain: moldau sim --scenario broker --seed {seed}"


def test_a_seed_replays_exactly() -> None:
    assert play("broker", 3).digest == play("broker", 3).digest


# ---------------------------------------------------------------- at every operation of its disk


def live(broker: ToldBroker) -> None:
    """Some of all that a broker does to its disk; what fails is tried again until it has worked."""
    broker.insist(2)
    broker.run_for(150)
    broker.insist()
    broker.insist(2)
    broker.insist_on_deletion(3)
    broker.run_for(700)
    broker.insist()
    broker.come_up()
    broker.read()


def operations_of_a_life() -> int:
    with ToldBroker(MANY_SEGMENTS) as broker:
        before = broker.disk.operation_count
        live(broker)
        return broker.disk.operation_count - before


def crash_at_every_write() -> None:
    """What a power cut would leave is looked at before each operation on the disk of a busy broker."""
    with ToldBroker(MANY_SEGMENTS, flush_ms=(2, 10)) as broker:
        broker.at_every_operation(broker.try_crashes)
        live(broker)
        operator = broker.connect(host="operator")
        firsts = []
        for number in range(40):
            firsts.append(broker.send())
            # While records wait to be flushed, their log is trimmed, and that is written down.
            if number % 4 == 0:
                operator.send(broker.delete_request(broker.log().high_watermark))
            broker.run_for(4)
        for first in firsts:
            broker.settle(first)
        broker.stop()


def test_a_broker_comes_back_from_a_crash_at_any_write() -> None:
    for number in range(1, operations_of_a_life() + 1, STRIDE):
        with ToldBroker(MANY_SEGMENTS) as broker:
            broker.disk.stop_at(broker.disk.operation_count + number)
            live(broker)
            broker.power_cut_and_start(Survives.SOME)
            broker.read()


def test_a_broker_comes_back_from_a_crash_while_it_comes_back() -> None:
    number, has_started = 1, False
    while not has_started:
        with ToldBroker(MANY_SEGMENTS) as broker:
            live(broker)
            broker.machine.kill()
            broker.disk.stop_at(number)
            broker.come_up()
            broker.read()
            number, has_started = number + STRIDE, broker.machine.start_count == 2


def test_any_write_and_any_flush_may_fail() -> None:
    """Found by some thirty seeds: where nobody expected a refusal, it ended the node as a bug does."""
    for number in range(1, operations_of_a_life() + 1, STRIDE):
        with ToldBroker(MANY_SEGMENTS) as broker:
            disk, failing = broker.disk, broker.disk.operation_count + number

            def fail(operation: Operation, disk: SimDisk = disk, failing: int = failing) -> None:
                if operation.number == failing and operation.kind == "fsync":
                    disk.fail("fsync")
                elif operation.number == failing:
                    disk.fail("write", code=errno.ENOSPC)

            broker.at_every_operation(fail)
            live(broker)
            broker.power_cut_and_start()
            broker.read()


# ---------------------------------------------------------------- what seeds have found


def test_nobody_sees_a_log_begin_later_before_no_crash_can_take_that_back() -> None:
    """Seeds 216, 532 and others: DeleteRecords moved the start, and then wrote it down."""
    with ToldBroker() as broker:
        broker.write(3)
        broker.disk.flush_ms = (200, 200)
        asking = broker.connect(host="another")
        asking.send(broker.delete_request(2))
        broker.run_for(100)
        assert broker.list_offset(EARLIEST).offset == 0
        asking.receive()
        assert broker.list_offset(EARLIEST).offset == 2
        broker.disk.flush_ms = (0, 5)
        broker.power_cut_and_start()
        assert broker.read() == [2]


def test_what_retention_has_deleted_does_not_come_back_either() -> None:
    """Seeds 167, 457 and others: the files were put aside, and a crash brought their names back."""
    with ToldBroker(SOON_DELETED) as broker:
        for _ in range(3):
            broker.write()
            broker.run_for(150)
        broker.run_until(lambda: broker.log().log_start_offset == 3)
        broker.history.on_deletion(TOPIC, 3)
        broker.read()
        broker.power_cut_and_start()
        assert broker.read() == []


@pytest.mark.parametrize("is_asked_to_stop", [False, True])
def test_checkpoints_that_are_written_before_the_logs_are_open_forget_nothing(is_asked_to_stop: bool) -> None:
    """Seed 49: they named no logs at all, and another crash then found no recovery point and no start."""
    with ToldBroker(settings={"replica.high.watermark.checkpoint.interval.ms": "1"}) as broker:
        broker.write(3)
        broker.delete(2)
        broker.await_checkpoint()
        broker.machine.kill()
        renamed: list[Operation] = []

        def note(operation: Operation) -> None:
            if operation.kind == "rename" and checkpoints.LOG_STARTS in operation.path:
                renamed.append(operation)

        broker.at_every_operation(note)
        broker.machine.start()
        broker.run_until(lambda: bool(renamed))
        assert len(broker.node.partitions) == 0, "the logs are not open yet"
        if is_asked_to_stop:
            broker.stop()
        else:
            broker.machine.kill()
        broker.start()
        assert broker.read() == [2]


def test_a_checkpoint_whose_writer_is_gone_does_not_spoil_the_next_one() -> None:
    """Seed 411: both passed through one temporary file, and the second got its name before its bytes."""
    with ToldBroker() as broker:
        broker.write(3)
        broker.await_checkpoint()
        broker.disk.flush_ms = (100, 100)
        asking = broker.connect(host="another")
        asking.send(broker.delete_request(1))
        broker.run_for(50)
        broker.sim.network.reset("another", "broker")
        broker.run_for(10)
        asking = broker.connect(host="another")
        asking.send(broker.delete_request(2))
        for _ in range(20):
            broker.run_for(25)
            image = broker.disk.crash(Survives.NOTHING)
            assert checkpoints.read_offsets(image, checkpoints.LOG_STARTS)[AT] in (0, 1, 2)


@pytest.mark.parametrize("position_in_batch", [8, 16, 26, 60])
def test_of_a_log_in_which_something_rots_all_else_is_served(position_in_batch: int) -> None:
    """Seeds 52, 62 and 167: damage before the recovery point took what was behind it along."""
    for damaged in (0, 6, 10):
        rot_and_restart(damaged, position_in_batch)


# ---------------------------------------------------------------- plots that catch one mutant each


def rot_and_restart(damaged: int = 4, position_in_batch: int = 60) -> None:
    """A bit flips in what was flushed, the broker is killed: only what is damaged cannot be read."""
    with ToldBroker(MANY_SEGMENTS) as broker:
        for _ in range(6):
            broker.write(2)
            broker.run_for(60)
        broker.await_checkpoint()
        broker.write()
        broker.flip(damaged, position_in_batch)
        files = broker.disk.list(str(AT))
        broker.crash()
        lost = [name for name in files if name.endswith(".log") and name not in broker.disk.list(str(AT))]
        if lost:
            raise Violation(f"{lost} were deleted, and only damaged")
        # What is in segments that were not verified at the start, a scrub finds.
        broker.run_until(lambda: broker.log().begin_scrub() is None)
        if broker.read() != [number for number in range(13) if number // 2 != damaged // 2]:
            raise Violation("something else is there than what was written and is not damaged")
        broker.power_cut_and_start()
        broker.run_until(lambda: broker.log().begin_scrub() is None)
        broker.write()
        broker.read()


def lose_the_answer(broker: ToldBroker) -> None:
    """A client's batch is in the log, and the broker is killed before it has said so."""
    values = [Value(TOPIC, 0, "client", number) for number in range(3)]
    settled: list[int] = []

    async def main(world: World) -> None:
        async with (
            open_client(world, [CLIENTS], ClientSettings.parse(IMPATIENT)) as client,
            client.producer(**CAREFUL) as producer,  # type: ignore[arg-type]  # none is a partitioner
        ):
            for value in values:
                broker.history.on_sent(value, world.clock.wall_ms())
                delivered = await (await producer.send(TOPIC, value.encode(), key=value.key, partition=0))
                broker.history.on_acknowledged(value, broker.log_id, delivered.offset, is_committed=True)
                settled.append(delivered.offset)

    broker.sim.add("client", main).start()
    broker.run_until(lambda: len(settled) == 1)
    broker.disk.flush_ms = (200, 200)
    broker.run_until(lambda: broker.log().log_end_offset == 2)
    broker.machine.kill()
    broker.disk.flush_ms = (0, 5)
    broker.start()
    broker.run_until(lambda: len(settled) == 3)
    broker.read()


def repeat_what_was_deleted(broker: ToldBroker) -> None:
    """Retention takes the segments of a producer's batches, which are sent again, also after a crash."""
    firsts = []
    for _ in range(3):
        firsts.append(broker.write())
        broker.run_for(150)
    broker.run_until(lambda: broker.log().log_start_offset == 3 and broker.log().oldest_offset == 3)
    broker.history.on_deletion(TOPIC, 3)
    for restart in (None, broker.crash, broker.power_cut_and_start):
        if restart is not None:
            restart()
        for first in firsts:
            broker.repeat(first)
    broker.write()
    broker.read()


def write_two_at_once(broker: ToldBroker) -> None:
    """Two batches wait for the same flush."""
    broker.disk.flush_ms = (50, 50)
    firsts = [broker.send(), broker.send()]
    for first in firsts:
        broker.settle(first)
    broker.read()


def lose_power_once_it_is_acknowledged(broker: ToldBroker) -> None:
    """The disk is slow, and the power goes as soon as a value is acknowledged."""
    broker.write()
    broker.run_for(100)
    broker.disk.flush_ms = (200, 200)
    broker.write()
    broker.disk.flush_ms = (0, 5)
    broker.power_cut_and_start()
    broker.write()
    broker.read()


def lose_power_once_it_is_recovered(broker: ToldBroker) -> None:
    """What was not flushed when the broker was killed is read after the restart, and then the power goes."""
    broker.write()
    broker.run_for(100)
    broker.disk.flush_ms = (10_000, 10_000)
    broker.send()
    broker.run_until(lambda: broker.log().log_end_offset == 2)
    broker.machine.kill()
    broker.disk.flush_ms = (0, 5)
    broker.start()
    broker.run_until(lambda: broker.log().high_watermark == 2)
    broker.read()
    broker.power_cut_and_start(Survives.NOTHING)
    broker.read()


def told(
    plot: Callable[[ToldBroker], None], topic_settings: dict[str, str] | None = None
) -> Callable[[], None]:
    def play_plot() -> None:
        with ToldBroker(topic_settings) as broker:
            plot(broker)

    return play_plot


Mutant = Callable[[], AbstractContextManager[None]]
Plot = Callable[[], None]

PLOTS: dict[str, tuple[Mutant, Plot]] = {
    "cut at the first bad batch": (broker_cut_at_first_bad_batch.applied, rot_and_restart),
    "epoch bumped on doubt": (broker_epoch_bumped_on_doubt.applied, told(lose_the_answer)),
    "producers die with segments": (
        broker_producers_die_with_segments.applied,
        told(repeat_what_was_deleted, SOON_DELETED),
    ),
    "offset of the watermark": (broker_offset_of_the_watermark.applied, told(write_two_at_once)),
    "acknowledged before flush": (
        broker_acknowledged_before_flush.applied,
        told(lose_power_once_it_is_acknowledged),
    ),
    "checkpoint in place": (broker_checkpoint_in_place.applied, crash_at_every_write),
    "recovery not flushed": (broker_recovery_not_flushed.applied, told(lose_power_once_it_is_recovered)),
    "recovery point ahead": (broker_recovery_point_ahead.applied, crash_at_every_write),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_mutant_is_caught_by_its_plot(name: str) -> None:
    mutant, plot = PLOTS[name]
    # A node that does not start on its own checkpoint is caught as well.
    with mutant(), pytest.raises((Violation, MalformedMessage)):
        plot()


@pytest.mark.parametrize("name", PLOTS)
def test_nothing_is_wrong_with_the_plot_itself(name: str) -> None:
    PLOTS[name][1]()
