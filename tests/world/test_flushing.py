"""What flushes come to when they are done together, and what they have to make durable."""

import pytest

from moldau.world.flushing import directories_of, merged
from moldau.world.ports import Flush


def test_renames_keep_their_order_when_merged() -> None:
    requests = [
        Flush(renames=(("a", "b"),), directories=("x",)),
        Flush(renames=(("b", "c"),), directories=("x",)),
    ]
    assert merged(requests) == Flush(renames=(("a", "b"), ("b", "c")), directories=("x",))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Flush(directories=("d",)), ("d",)),
        (Flush(renames=(("t/a", "t/b"),)), ("t",)),
        (Flush(renames=(("a", "t/b"),), directories=("t",)), ("", "t")),
    ],
)
def test_the_directories_of_renames_are_flushed_too(work: Flush, expected: tuple[str, ...]) -> None:
    assert directories_of(work) == expected
