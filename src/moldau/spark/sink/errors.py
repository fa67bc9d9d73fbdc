"""Why rows cannot be written, in words for those who wrote the query."""

from __future__ import annotations

from typing import Final

from moldau.spark.errors import SourceError

_KEY_BYTES_SHOWN: Final = 40


class BadColumns(SourceError):
    """The columns of a query are not those of records."""


class BadRow(SourceError):
    """A row that is no record, or has no place to go."""


class BadTopic(SourceError):
    """A topic that is not there, or cannot be written to."""


class NotWritten(SourceError):
    """Rows that were sent and not acknowledged; some of them may be in the topic all the same."""


def described(row: int, task: int, key: bytes | None) -> str:
    """A row as errors name it: which of its task's, counted from 1, and what its key begins with."""
    if key is None:
        return f"Row {row} of task {task} (without a key)"
    text = key[:_KEY_BYTES_SHOWN].decode("utf-8", "backslashreplace")
    return f"Row {row} of task {task} (key {text!r}{'...' if len(key) > _KEY_BYTES_SHOWN else ''})"
