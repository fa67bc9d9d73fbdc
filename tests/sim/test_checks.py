"""The checkers themselves: each contradiction is noticed, and what only looks like one is not."""

from collections.abc import Callable

import pytest
from sim.brokers import ToldBroker

from moldau.model.ids import Uuid
from moldau.sim.checks import History, LogId, Mark, Value
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.reopening import Promise, check_image
from moldau.sim.run import Violation
from moldau.sim.scenarios.broker import TASKS_MAX, BrokerProgram, Looker

LOG = LogId(Uuid(b"the topic's own ."), "t", 0)
A, B, C = (Value("t", 0, "writer", number) for number in (1, 2, 3))
# In a compacted topic it takes the place of A.
A_AGAIN = Value("t", 0, "writer", 6)
NOW = 10_000

Story = Callable[[History], None]


def wrote(history: History, value: Value, offset: int) -> None:
    history.on_sent(value, NOW)
    history.on_acknowledged(value, LOG, offset, is_committed=True)


def read(history: History, value: Value, offset: int, *, epoch: int = 0) -> None:
    history.on_read("reader", LOG, offset, value.encode(), epoch=epoch)


def told(history: History, mark: Mark, value: int, *, now_ms: int = NOW) -> None:
    history.on_marks(LOG, {mark: value}, asked_at=history.marks(LOG), now_ms=now_ms)


def check(history: History, found: dict[int, Value], *, start: int = 0) -> None:
    data = {offset: value.encode() for offset, value in found.items()}
    history.check_log(LOG, data, start=start, end=max(found, default=start - 1) + 1)


def two_values(history: History) -> None:
    wrote(history, A, 0)
    read(history, B, 0)


def two_offsets(history: History) -> None:
    wrote(history, A, 0)
    read(history, A, 3)


def lost(history: History) -> None:
    wrote(history, A, 0)
    wrote(history, B, 1)
    check(history, {1: B}, start=0)


def cut_off(history: History) -> None:
    wrote(history, A, 0)
    wrote(history, B, 1)
    check(history, {0: A})


def refused_and_read(history: History) -> None:
    history.on_refused(A, "MESSAGE_TOO_LARGE")
    read(history, A, 0)


def read_and_refused(history: History) -> None:
    read(history, A, 0)
    history.on_refused(A, "MESSAGE_TOO_LARGE")


def out_of_order(history: History) -> None:
    wrote(history, B, 0)
    wrote(history, A, 1)
    check(history, {0: B, 1: A})


def wrong_topic(history: History) -> None:
    history.on_read("reader", LOG._replace(partition=1), 0, A.encode())


def reader_goes_back(history: History) -> None:
    history.on_skipped("reader", LOG, expected=3, got=2, now_ms=NOW)


def reader_skips(history: History) -> None:
    history.on_skipped("reader", LOG, expected=3, got=4, now_ms=NOW)


def hole(history: History) -> None:
    check(history, {0: A, 2: B})


def gone_too_early(history: History) -> None:
    history.retention_ms["t"] = 700
    wrote(history, A, 0)
    told(history, Mark.LOG_START, 1, now_ms=NOW + 700)


def never_to_be_deleted(history: History) -> None:
    told(history, Mark.LOG_START, 1)


def stable_beyond_the_end(history: History) -> None:
    seen = {Mark.LAST_STABLE_OFFSET: 2, Mark.HIGH_WATERMARK: 1}
    history.on_marks(LOG, seen, asked_at=history.marks(LOG), now_ms=NOW)


def epochs_fall(history: History) -> None:
    read(history, A, 0, epoch=2)
    read(history, B, 1, epoch=1)
    check(history, {0: A, 1: B})


def newest_of_its_key_is_gone(history: History) -> None:
    history.compacted["t"] = None
    wrote(history, A, 0)
    wrote(history, A_AGAIN, 1)
    check(history, {0: A, 2: C})


def unreadable_without_rot(history: History) -> None:
    history.on_unreadable("reader", LOG, 0)


def more_than_the_rot_is_gone(history: History) -> None:
    for offset, value in enumerate((A, B, C)):
        wrote(history, value, offset)
    history.on_rot(LOG, first=1, last=1)
    check(history, {2: C})


CONTRADICTIONS: dict[str, Story] = {
    story.__name__: story
    for story in (
        *(two_values, two_offsets, lost, cut_off, refused_and_read, read_and_refused, out_of_order),
        *(wrong_topic, reader_goes_back, reader_skips, hole, gone_too_early, never_to_be_deleted),
        *(stable_beyond_the_end, epochs_fall, newest_of_its_key_is_gone, unreadable_without_rot),
        more_than_the_rot_is_gone,
    )
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_noticed(name: str) -> None:
    with pytest.raises(Violation):
        CONTRADICTIONS[name](History())


@pytest.mark.parametrize("mark", Mark)
def test_no_mark_may_go_back(mark: Mark) -> None:
    history = History()
    history.on_deletion("t", 9)
    told(history, mark, 4)
    with pytest.raises(Violation, match=f"the {mark.value} .* went back from 4 to 3"):
        told(history, mark, 3)


def test_who_asked_before_may_be_told_less() -> None:
    history = History()
    asked_at = history.marks(LOG)
    told(history, Mark.HIGH_WATERMARK, 4)
    history.on_marks(LOG, {Mark.HIGH_WATERMARK: 3}, asked_at=asked_at, now_ms=NOW)


def test_what_was_to_go_may_go() -> None:
    history = History()
    for offset, value in enumerate((A, B, C)):
        wrote(history, value, offset)
    history.on_deletion("t", 1)
    told(history, Mark.LOG_START, 1)
    history.on_rot(LOG, first=1, last=1)
    assert history.on_unreadable("reader", LOG, 1) == 2
    check(history, {2: C}, start=1)
    aged = History()
    aged.retention_ms["t"] = 700
    wrote(aged, A, 0)
    told(aged, Mark.LOG_START, 1, now_ms=NOW + 701)
    compacted = History()
    compacted.compacted["t"] = None
    wrote(compacted, A, 0)
    wrote(compacted, A_AGAIN, 1)
    check(compacted, {1: A_AGAIN})


def test_of_a_plain_writer_without_sequence_numbers_no_order_is_expected() -> None:
    history = History()
    history.unordered_writers["writer"] = None
    wrote(history, B, 0)
    wrote(history, A, 1)
    check(history, {0: B, 1: A})


# ---------------------------------------------------------------- from within


def test_a_crash_that_takes_what_was_flushed_is_noticed() -> None:
    with ToldBroker() as broker:
        broker.write(3)
        (replica,) = broker.node.partitions
        promise = Promise.of(replica)
        broker.try_crashes()
        path = f"t-0/{0:020d}.log"
        damages: list[Callable[[SimDisk], None]] = [
            lambda image: image.remove("t-0"),
            lambda image: image.open(path).truncate(0),
            lambda image: image.open(path).write_at(80, b"!"),
        ]
        for damage in damages:
            image = broker.disk.crash(Survives.NOTHING)
            damage(image)
            with pytest.raises(Violation):
                check_image(image, [promise], world=broker._world, survives=Survives.NOTHING)


@pytest.mark.parametrize("attribute", ["high_watermark", "log_start_offset"])
def test_a_broker_that_is_wrong_from_within_is_noticed(attribute: str) -> None:
    with ToldBroker() as broker:
        broker.write(3)
        looker = Looker(BrokerProgram())
        looker.check(broker.node)
        setattr(broker.log(), attribute, 4)
        with pytest.raises(Violation):
            looker.check(broker.node)


def test_a_high_watermark_that_falls_is_noticed() -> None:
    with ToldBroker() as broker:
        broker.write(3)
        looker = Looker(BrokerProgram())
        looker.check(broker.node)
        broker.log().high_watermark = 2
        with pytest.raises(Violation):
            looker.check(broker.node)


def check_often(looker: Looker, broker: ToldBroker) -> None:
    for _ in range(20):
        looker.check_step(broker.machine)


def test_tasks_that_never_end_are_noticed() -> None:
    with ToldBroker() as broker:
        program = BrokerProgram()
        program.node = broker.node
        looker = Looker(program)
        check_often(looker, broker)

        async def wait() -> None:
            await broker._world.clock.sleep_ms(1_000_000)

        process = broker.machine._process
        assert process is not None
        for _ in range(TASKS_MAX):
            broker.sim.loop.create_task(wait(), context=process.context)
        with pytest.raises(Violation, match="tasks"):
            check_often(looker, broker)
