"""How much a micro-batch takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition
from moldau.spark.plan.limits import NO_LIMIT, Limits, available, share_out

A, B, C = (place_of(("t", index)) for index in range(3))

LOGS = st.dictionaries(
    st.integers(0, 9).map(lambda index: place_of(("t", index))),
    st.tuples(st.integers(0, 10**12), st.integers(-100, 10**9)),
    min_size=1,
)


@pytest.mark.parametrize(
    ("limit", "sizes", "taken"),
    [
        (100, {A: 50, B: 50}, {A: 50, B: 50}),
        (100, {A: 300, B: 100}, {A: 75, B: 25}),
        (10, {A: 1000, B: 0}, {A: 10, B: 0}),
        # A partition with little is not starved, so there are a few more than the limit.
        (10, {A: 1000, B: 1}, {A: 9, B: 1}),
        (1, {A: 1000, B: 1000, C: 1000}, {A: 1, B: 1, C: 1}),
        (NO_LIMIT, {A: 5}, {A: 5}),
    ],
)
def test_a_limit_is_shared_by_what_partitions_have(
    limit: int, sizes: dict[TopicPartition, int], taken: dict[TopicPartition, int]
) -> None:
    starts = dict.fromkeys(sizes, 7)
    ends = share_out(limit, starts, {place: 7 + size for place, size in sizes.items()})
    assert {place: end - 7 for place, end in ends.items()} == taken


@given(LOGS, st.integers(1, 10**10))
def test_shares_stay_within_the_logs_and_move_every_partition_on(
    logs: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    starts = {place: start for place, (start, _) in logs.items()}
    latest = {place: start + size for place, (start, size) in logs.items()}
    ends = share_out(limit, starts, latest)
    for place, end in ends.items():
        assert end <= latest[place]
        if latest[place] > starts[place]:
            assert end > starts[place]
        else:
            # What has shrunk is seen as such, and not as something to read.
            assert end == latest[place]
    assert available(starts, ends) <= limit + len(logs)


@pytest.mark.parametrize(
    ("waited_ms", "there", "is_let_go"),
    [(0, 99, False), (999, 99, False), (1_000, 99, True), (0, 100, True), (1_000, 0, True)],
)
def test_a_batch_waits_for_enough_or_long_enough(waited_ms: int, there: int, is_let_go: bool) -> None:
    limits = Limits(offsets_min=100, delay_ms_max=1_000)
    end = limits.end({A: 5}, {A: 5 + there}, waited_ms=waited_ms)
    assert end == ({A: 5 + there} if is_let_go else None)


def test_by_default_a_batch_takes_all_there_is_at_once() -> None:
    assert Limits().end({A: 0, B: 3}, {A: 10**15, B: 4}, waited_ms=0) == {A: 10**15, B: 4}
