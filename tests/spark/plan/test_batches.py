"""What a micro-batch reads, and what it finds missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition
from moldau.spark.plan.batches import Logs, Loss, capped, lacks, plan_batch, starts_of, told
from moldau.spark.plan.offsets import Position

A, B = place_of(("a", 0)), place_of(("b", 0))
OLD, NEW = {"a": "id of the old"}, {"a": "id of the new"}


def ranges(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int] | None = None,
    **ids: dict[str, str],
) -> tuple[list[tuple[TopicPartition, int, int]], list[str]]:
    batch = plan_batch(
        Position(start, ids.get("before", {})),
        Position(end, ids.get("after", {})),
        Logs(dict.fromkeys(end, 0) if earliest is None else earliest, ids.get("now", ids.get("after", {}))),
    )
    return [(each.place, each.start, each.end) for each in batch.ranges], [str(loss) for loss in batch.losses]


def test_a_batch_goes_from_start_to_end() -> None:
    assert ranges({A: 3, B: 5}, {A: 9, B: 5}) == ([(A, 3, 9)], [])


def test_a_partition_that_has_come_is_read_from_its_beginning() -> None:
    assert ranges({A: 3}, {A: 3, B: 4}) == ([(B, 0, 4)], [])


def test_a_new_partition_that_has_lost_its_beginning_is_told() -> None:
    assert ranges({}, {B: 4}, {B: 2}) == ([(B, 2, 4)], ["b-0: it is new, and begins at offset 2 already"])


def test_records_that_expired_before_they_were_read_are_lost() -> None:
    found, losses = ranges({A: 3}, {A: 9}, {A: 5})
    assert found == [(A, 5, 9)]
    assert losses == ["a-0: offset 3 was to be read next, and the log begins at 5"]


def test_a_batch_that_expired_as_a_whole_reads_nothing() -> None:
    found, losses = ranges({A: 3}, {A: 9}, {A: 50})
    assert found == []
    assert losses == ["a-0: offset 3 was to be read next, and the log begins at 50"]


def test_a_log_that_ends_before_what_was_read_was_truncated() -> None:
    found, losses = ranges({A: 9}, {A: 4})
    assert found == []
    assert losses == ["a-0: offset 9 was to be read next, and the log ends at 4"]


def test_a_topic_that_was_created_again_is_read_from_its_beginning() -> None:
    found, losses = ranges({A: 9}, {A: 12}, before=OLD, after=NEW)
    assert found == [(A, 0, 12)]
    assert losses == [
        "a-0: the topic was deleted and created again; the old one was read up to offset 9",
    ]


def test_a_topic_that_was_created_again_after_the_plan_is_left_alone() -> None:
    found, losses = ranges({A: 9}, {A: 12}, before=OLD, after=OLD, now=NEW)
    assert found == []
    assert "deleted and created again; the old one was read up to offset 9 after" in losses[0]


@pytest.mark.parametrize("ids", [{}, {"before": OLD}, {"after": NEW}])
def test_ids_that_nobody_knows_make_no_difference(ids: dict[str, dict[str, str]]) -> None:
    assert ranges({A: 9}, {A: 12}, None, **ids) == ([(A, 9, 12)], [])


def test_a_topic_that_is_gone_is_a_loss_whether_or_not_the_end_knows_it() -> None:
    why = "the partition is gone, or the query does not subscribe to it any more"
    gone = f"a-0: {why}; it was read up to offset 3"
    assert ranges({A: 3}, {}) == ([], [gone])
    assert ranges({A: 3}, {A: 9}, {}) == ([], [gone])


@given(
    st.dictionaries(st.integers(0, 5).map(lambda i: place_of(("t", i))), st.integers(0, 99)),
    st.dictionaries(st.integers(0, 5).map(lambda i: place_of(("t", i))), st.integers(0, 99)),
    st.dictionaries(st.integers(0, 5).map(lambda i: place_of(("t", i))), st.integers(0, 99)),
)
def test_what_is_not_read_is_lost_and_nothing_is_read_twice(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
) -> None:
    batch = plan_batch(Position(start), Position(end), Logs(earliest, {}))
    lost = {loss.place for loss in batch.losses}
    read = {each.place: each for each in batch.ranges}
    assert len(read) == len(batch.ranges)
    for place in start.keys() | end.keys():
        begin = start.get(place, 0)
        if place in lost:
            continue
        # All that was to be read is read.
        wanted = (begin, end[place]) if end[place] > begin else None
        found = read.get(place)
        assert (None if found is None else (found.start, found.end)) == wanted


def test_a_query_goes_on_where_it_was_and_at_the_beginning_of_what_is_new() -> None:
    start = Position({A: 7}, OLD)
    assert starts_of(start, Position({A: 9, B: 4}, OLD), {B: 1}) == {A: 7, B: 1}
    assert starts_of(start, Position({A: 9}, NEW), {A: 0}) == {A: 0}


def test_what_was_read_must_be_there_still() -> None:
    start = Position({A: 7}, OLD)
    assert lacks(Position({A: 6}, OLD), start)
    assert lacks(Position({B: 9}, OLD), start)
    assert not lacks(Position({A: 7, B: 0}, OLD), start)
    # Another topic of that name has nothing to do with it.
    assert not lacks(Position({A: 2}, NEW), start)


def test_a_snapshot_bounds_what_comes_later() -> None:
    snapshot = Position({A: 10})
    assert capped(Position({A: 12, B: 5}), at=snapshot, start=Position({A: 3})).offsets == {A: 10}
    assert capped(Position({A: 9}), at=snapshot, start=Position({A: 3})).offsets == {A: 9}
    assert capped(Position({A: 15}), at=snapshot, start=Position({A: 11})).offsets == {A: 11}


def test_of_many_losses_the_first_are_told() -> None:
    losses = tuple(Loss(place_of(("t", index)), "gone") for index in range(7))
    assert told(losses) == "t-0: gone; t-1: gone; t-2: gone; t-3: gone; t-4: gone; and 2 more"
    assert told(losses[:2]) == "t-0: gone; t-1: gone"
