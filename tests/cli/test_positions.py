"""Where to begin, in words."""

from __future__ import annotations

import pytest

from moldau.cli._positions import AtOffset, AtTime, BeforeEnd, Beginning, End, Where, parse_where

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("END", End()),
        ("42", AtOffset(42)),
        ("-42", BeforeEnd(42)),
        ("@42", AtTime(42)),
        ("-500ms", AtTime(NOW_MS - 500)),
        ("-10s", AtTime(NOW_MS - 10_000)),
        ("-1h", AtTime(NOW_MS - 3_600_000)),
        ("-2w", AtTime(NOW_MS - 1_209_600_000)),
        ("2023-11-14T22:13:20Z", AtTime(NOW_MS)),
        ("2023-11-14T23:13:20.5+01:00", AtTime(NOW_MS + 500)),
        # What is older than any record is not below zero, where requests mean something else.
        ("-99999w", AtTime(0)),
        ("1960-01-01T00:00Z", AtTime(0)),
        (str(2**63 - 1), AtOffset(2**63 - 1)),
    ],
)
def test_a_word_means_a_place(text: str, where: Where) -> None:
    assert parse_where(text, now_ms=NOW_MS) == where


@pytest.mark.parametrize("text", ["", "-", "@", "1h", "-1y", "begin", "2023-13-01", "4 2", "٤٢"])
def test_other_words_mean_nothing(text: str) -> None:
    with pytest.raises(ValueError):
        parse_where(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "text", [str(2**63), f"@{2**63}", f"-{2**63}", f"-{2**63}s", "0001-01-01T00:00+14:00"]
)
def test_what_no_request_can_say_means_nothing(text: str) -> None:
    with pytest.raises(ValueError):
        parse_where(text, now_ms=NOW_MS)


def test_a_time_without_a_zone_is_the_users_own() -> None:
    here, there = parse_where("2030-01-31T12:00", now_ms=0), parse_where("2030-01-31T12:00Z", now_ms=0)
    assert isinstance(here, AtTime)
    assert isinstance(there, AtTime)
    assert abs(here.timestamp_ms - there.timestamp_ms) <= 14 * 3_600_000
