"""However a crash cuts a history of a log off, what is left opens, keeps every promise, and goes on."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from log.crash_points import (
    HISTORIES,
    Broker,
    CrashFound,
    Promise,
    Thoroughness,
    check,
    crash_images,
    enumerate_crashes,
)

from moldau.log import checkpoints, recovery
from moldau.log.compaction import Compaction
from moldau.log.log import FlushWork, Log
from moldau.sim.disk import PowerCut, SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.world.ports import Flush

EVERY_CHANGE = Thoroughness(seeds=2, recovery_stride=97)
# Compaction's histories are long, and are cut off here at some changes only; `crash_points.py` says how to
# run all of it.
SOME_CHANGES = Thoroughness(seeds=2, stride=7, recovery_stride=151)
PLAN = {
    "appends_and_rolls": (EVERY_CHANGE, 500),
    "flushes_that_overlap": (EVERY_CHANGE, 600),
    "new_leaders": (EVERY_CHANGE, 500),
    "truncations": (EVERY_CHANGE, 700),
    "dropped_and_begun_again": (EVERY_CHANGE, 350),
    "deletions": (EVERY_CHANGE, 800),
    "producers_and_transactions": (EVERY_CHANGE, 500),
    "clean_restarts": (EVERY_CHANGE, 900),
    "compactions": (SOME_CHANGES, 240),
    "compaction_amid_work": (SOME_CHANGES, 180),
    "compaction_of_transactions": (SOME_CHANGES, 220),
    "compaction_ahead_of_the_flush": (EVERY_CHANGE, 600),
}
IMAGES_MIN = 5000


@pytest.mark.parametrize(
    ("history", "thoroughness", "images_min"),
    [
        pytest.param(name, plan, images, id=f"{name}-every-{plan.stride}-seeds-{plan.seeds}")
        for name, (plan, images) in PLAN.items()
    ],
)
def test_no_crash_breaks_a_promise(history: str, thoroughness: Thoroughness, images_min: int) -> None:
    assert enumerate_crashes(history, thoroughness) >= images_min


def test_every_history_is_planned_and_thousands_of_images_are_asked_for() -> None:
    assert PLAN.keys() == HISTORIES.keys()
    assert sum(images for _, images in PLAN.values()) >= IMAGES_MIN


@pytest.mark.parametrize("number", [1, 2, 40, 101, 102, 150])
def test_an_image_taken_on_the_way_is_the_one_that_stopping_there_leaves(number: int) -> None:
    taken: list[dict[str, bytes]] = []
    disk = SimDisk(Seeded("truncations"))
    disk.on_operation = lambda operation: (
        taken.extend(_files(image) for _, image in crash_images(disk, "here", 2))
        if operation.number == number
        else None
    )
    HISTORIES["truncations"](Broker(disk, Promise()))
    stopped = SimDisk(Seeded("truncations"))
    stopped.stop_at(number)
    with pytest.raises(PowerCut):
        HISTORIES["truncations"](Broker(stopped, Promise()))
    assert [_files(image) for _, image in crash_images(stopped, "here", 2)] == taken


def test_a_promise_that_nobody_kept_is_noticed() -> None:
    promise = Promise()
    disk = SimDisk(Seeded(0))
    broker = Broker(disk, promise)
    broker.append("a")
    broker.flush()
    check(disk.crash(Survives.NOTHING), promise)
    broker.append("b")
    promise.durable_end = 2
    with pytest.raises(AssertionError, match="the log ends at 1, flushed was 2"):
        check(disk.crash(Survives.NOTHING), promise)


# ---------------------------------------------------------------- known bugs, injected again

Mutation = Callable[[pytest.MonkeyPatch], None]


def recovery_believes_every_crc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "check_crc", lambda *_: None)


def recovery_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "_note_recovered", lambda *_: None)


def a_flush_leaves_the_directory_out(patch: pytest.MonkeyPatch) -> None:
    begin_flush = Log.begin_flush

    def mutated(log: Log) -> FlushWork:
        work = begin_flush(log)
        return replace(work, flush=replace(work.flush, renames=(), directories=()))

    patch.setattr(Log, "begin_flush", mutated)


def a_truncation_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    set_end = Log._set_end

    def mutated(log: Log, offset: int) -> None:
        set_end(log, offset)
        log._must_flush = False

    patch.setattr(Log, "_set_end", mutated)


def a_flush_from_before_a_truncation_counts(patch: pytest.MonkeyPatch) -> None:
    flushed = Log.flushed
    patch.setattr(Log, "flushed", lambda log, work: flushed(log, replace(work, truncations=log._truncations)))


def the_recovery_point_runs_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "recovery_point", property(lambda log: log.log_end_offset))


def the_clean_shutdown_marker_outlives_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoints, "remove_clean_shutdown", lambda _: Flush())


def a_compacted_segment_takes_its_name_before_it_is_flushed(patch: pytest.MonkeyPatch) -> None:
    step = Compaction.step

    def mutated(compaction: Compaction, bytes_max: int) -> Flush | None:
        work = step(compaction, bytes_max)
        return None if work is None else replace(work, files=())

    patch.setattr(Compaction, "step", mutated)


@pytest.mark.parametrize(
    ("mutation", "history"),
    [
        (recovery_believes_every_crc, "appends_and_rolls"),
        (recovery_is_not_flushed, "appends_and_rolls"),
        (a_flush_leaves_the_directory_out, "appends_and_rolls"),
        (a_truncation_is_not_flushed, "truncations"),
        (a_flush_from_before_a_truncation_counts, "truncations"),
        (the_recovery_point_runs_ahead, "appends_and_rolls"),
        (the_clean_shutdown_marker_outlives_the_start, "clean_restarts"),
        (a_compacted_segment_takes_its_name_before_it_is_flushed, "compactions"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_bug_is_found(mutation: Mutation, history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    with pytest.raises(CrashFound):
        enumerate_crashes(history, Thoroughness(seeds=2))


def _files(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.open(path).read(0, 1 << 30) for path in disk.paths()}
