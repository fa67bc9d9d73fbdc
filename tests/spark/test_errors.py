"""Errors as Spark passes them on: the reason, and nothing of the way to it."""

import traceback
from collections.abc import Callable, Iterator

import pytest

from moldau.client import ClientError
from moldau.model.errors import ErrorCode
from moldau.model.settings.setting import InvalidSetting
from moldau.spark.errors import (
    BadOption,
    BrokerError,
    DataLoss,
    SourceError,
    rows_told_plainly,
    told_plainly,
)


def deep(error: Exception) -> None:
    def deeper() -> None:
        try:
            raise KeyError("the way to it")
        except KeyError:
            raise error  # noqa: B904  # to have a context

    deeper()


def by_call(error: Exception) -> None:
    told_plainly(deep)(error)


def by_row(error: Exception) -> None:
    def rows() -> Iterator[int]:
        yield 1
        deep(error)

    seen = rows_told_plainly(rows())
    assert next(seen) == 1
    next(seen)


@pytest.mark.parametrize("fail", [by_call, by_row])
@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (DataLoss("gone"), DataLoss, "gone"),
        (InvalidSetting("Option x is wrong."), BadOption, "Option x is wrong."),
        (
            ClientError(ErrorCode.NETWORK_EXCEPTION, "nobody answers"),
            BrokerError,
            "NETWORK_EXCEPTION (13): nobody answers",
        ),
    ],
)
def test_only_the_reason_is_left(
    fail: Callable[[Exception], None], error: Exception, kind: type[SourceError], text: str
) -> None:
    with pytest.raises(SourceError) as failed:
        fail(error)
    assert (type(failed.value), str(failed.value)) == (kind, text)
    shown = "".join(traceback.format_exception(failed.value))
    assert "the way to it" not in shown
    assert "deeper" not in shown


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as failed:
        by_call(ZeroDivisionError())
    assert "deeper" in "".join(traceback.format_exception(failed.value))


def test_rows_that_come_to_their_end_end() -> None:
    assert list(rows_told_plainly(iter([1, 2]))) == [1, 2]
