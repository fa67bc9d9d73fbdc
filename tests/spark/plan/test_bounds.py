"""What a batch query asked for, and what the logs have."""

import pytest

from moldau.client.offsets import place_of
from moldau.spark.plan.bounds import BackwardRange, Extent, plan_query

A = place_of(("a", 0))


@pytest.mark.parametrize(
    ("start", "end", "log", "expected", "losses"),
    [
        (0, 10, (0, 10), (0, 10), []),
        (3, 3, (0, 10), (3, 3), []),
        (0, 0, (0, 0), (0, 0), []),
        (2, 10, (5, 10), (5, 10), ["offset 2 was asked for, and the log begins at 5"]),
        (2, 4, (5, 10), (5, 5), ["offset 2 was asked for, and the log begins at 5"]),
        (3, 12, (0, 10), (3, 10), ["offsets up to 12 were asked for, and what may be read ends at 10"]),
        (11, 12, (0, 10), (11, 11), ["offsets up to 12 were asked for, and what may be read ends at 10"]),
        # Nothing was asked for that is gone.
        (2, 2, (5, 10), (5, 5), []),
    ],
)
def test_a_range_is_cut_down_to_what_is_there(
    start: int, end: int, log: tuple[int, int], expected: tuple[int, int], losses: list[str]
) -> None:
    batch = plan_query({A: start}, {A: end}, {A: Extent(*log)})
    (found,) = batch.ranges
    assert (found.start, found.end) == expected
    assert [loss.what for loss in batch.losses] == losses


def test_a_range_that_ends_before_it_begins_is_a_mistake() -> None:
    with pytest.raises(BackwardRange, match="a-0 is to be read from offset 7 to 5"):
        plan_query({A: 7}, {A: 5}, {A: Extent(0, 10)})
