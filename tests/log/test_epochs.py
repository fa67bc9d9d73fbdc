"""Which epoch ends where, as followers and clients ask for it."""

import pytest
from log.support import NOW_MS, PATH, Keeper, batch

from moldau.log.epochs import EpochStart, LeaderEpochs
from moldau.model.errors import MalformedMessage

STARTS = [EpochStart(2, 0), EpochStart(3, 10), EpochStart(7, 25)]


@pytest.mark.parametrize(
    ("asked", "epoch", "end_offset"),
    [
        (-1, -1, -1),
        (0, 0, 0),
        (2, 2, 10),
        (3, 3, 25),
        (5, 3, 25),
        (7, 7, 40),
        (8, -1, -1),
    ],
)
def test_an_epoch_ends_where_the_next_one_starts(asked: int, epoch: int, end_offset: int) -> None:
    assert LeaderEpochs(STARTS).end_of(asked, log_end=40) == (epoch, end_offset)


def test_without_epochs_every_end_is_unknown() -> None:
    assert LeaderEpochs().end_of(0, log_end=40) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "start_offset", "left"),
    [
        (7, 30, STARTS),
        (9, 40, [*STARTS, EpochStart(9, 40)]),
        (9, 25, [*STARTS[:2], EpochStart(9, 25)]),
        (3, 30, [STARTS[0], EpochStart(3, 30)]),
        (1, 0, [EpochStart(1, 0)]),
    ],
)
def test_what_contradicts_a_new_epoch_gives_way(
    epoch: int, start_offset: int, left: list[EpochStart]
) -> None:
    epochs = LeaderEpochs(STARTS)
    epochs.assign(epoch=epoch, start_offset=start_offset)
    assert list(epochs) == left


@pytest.mark.parametrize(("offset", "left"), [(26, 3), (25, 2), (11, 2), (10, 1), (0, 0)])
def test_truncation_forgets_the_epochs_that_start_later(offset: int, left: int) -> None:
    epochs = LeaderEpochs(STARTS)
    epochs.truncate_end(offset)
    assert list(epochs) == STARTS[:left]


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, STARTS),
        (5, [EpochStart(2, 5), *STARTS[1:]]),
        (10, STARTS[1:]),
        (30, [EpochStart(7, 30)]),
    ],
)
def test_a_log_that_starts_later_knows_the_epoch_it_starts_in(offset: int, left: list[EpochStart]) -> None:
    epochs = LeaderEpochs(STARTS)
    epochs.truncate_start(offset)
    assert list(epochs) == left
    assert epochs.is_changed == (left != STARTS)


def test_the_checkpoint_is_kafkas_text() -> None:
    text = LeaderEpochs(STARTS).to_text()
    assert text == "0\n3\n2 0\n3 10\n7 25\n"
    assert list(LeaderEpochs.from_text(text)) == STARTS


@pytest.mark.parametrize("text", ["", "0", "1\n0\n", "0\n2\n1 0\n", "0\n1\n1\n", "0\n1\nx 0\n"])
def test_a_checkpoint_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        LeaderEpochs.from_text(text)


def test_the_epochs_of_appended_batches_survive_a_restart() -> None:
    keeper = Keeper()
    keeper.append(batch(3), epoch=1)
    keeper.log.append_as_follower(batch(2, base_offset=3, leader_epoch=4), now_ms=NOW_MS)
    keeper.restart()
    assert list(keeper.log.epochs) == [(1, 0), (4, 3)]
    assert keeper.log.end_offset_for_epoch(1) == (1, 3)
    assert keeper.log.end_offset_for_epoch(4) == (4, 5)


def test_the_checkpoint_is_replaced_only_by_a_flush() -> None:
    keeper = Keeper()
    keeper.append(batch(3), epoch=1)
    assert keeper.names("checkpoint") == []
    work = keeper.log.begin_flush()
    assert keeper.names("checkpoint") == []
    keeper.disk.flush_blocking(work.flush)
    file = keeper.disk.open(f"{PATH}/leader-epoch-checkpoint")
    assert file.read(0, 100) == b"0\n1\n1 0\n"


def test_an_epoch_begun_and_never_written_goes_even_if_no_batch_does() -> None:
    keeper = Keeper()
    keeper.append(batch(3), epoch=1)
    keeper.log.begin_epoch(2)
    assert keeper.log.end_offset_for_epoch(2) == (2, 3)
    keeper.truncate(3)
    assert list(keeper.log.epochs) == [(1, 0)]
