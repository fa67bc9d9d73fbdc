"""Regular expressions to which members subscribe: matched by RE2, which no client can make slow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicName


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that an expression stands for, in order, and by what it was resolved."""

    topics: tuple[TopicName, ...] = ()
    # The last record of the metadata that was looked at.
    version: int = -1
    timestamp_ms: int = -1


def check_regex(regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION unless RE2 understands it."""
    if (why := why_none(regex)) is not None:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{regex!r} is not a regular expression: {why}."
        )


def why_none(regex: str) -> str | None:
    """Why RE2 does not understand it, and where, `missing ): a(b`; None if it does."""
    import re2

    try:
        re2.compile(regex, _options())
    except re2.error as wrong:
        return _reason(wrong)
    return None


def matching(regex: str, topics: Iterable[TopicName]) -> list[TopicName]:
    """The topics whose whole name matches; none if the expression, written by others, cannot be read here."""
    import re2

    try:
        pattern = re2.compile(regex, _options())
    except re2.error:
        return []
    return [topic for topic in topics if pattern.fullmatch(topic)]


def _options() -> object:
    import re2

    options = re2.Options()
    # It would write to standard error what we put into the reply.
    options.log_errors = False
    return options


def _reason(wrong: Exception) -> str:
    (reason,) = wrong.args
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
