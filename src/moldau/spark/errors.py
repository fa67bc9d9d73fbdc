"""Errors for the people who run queries: one line, without the way through our code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from moldau.model.errors import KafkaError
from moldau.model.settings.setting import InvalidSetting

P = ParamSpec("P")
T = TypeVar("T")


class SourceError(Exception):
    """Something that whoever runs the query can do something about; the text says what."""


class BadOption(SourceError):
    """An option that does not exist, or that cannot have its value."""


class BrokerError(SourceError):
    """A broker refused something, or did not answer."""


class NoBroker(SourceError):
    """No broker answers; the text says which were tried."""


class MissingTopic(SourceError):
    """A topic or a partition that was asked for does not exist."""


class BadBound(SourceError):
    """Offsets or timestamps to begin or end at that do not fit the topics."""


class BadCheckpoint(SourceError):
    """A checkpoint that is not one of this source."""


class DataLoss(SourceError):
    """Records that were to be read are gone."""


class NothingCame(SourceError):
    """Records that must be there did not come in time."""


def told_plainly(function: Callable[P, T]) -> Callable[P, T]:
    """A function that Spark calls: of what goes wrong for a reason, only the reason is passed on.

    Spark shows an error with its whole traceback, which helps with a bug and hides anything else.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (SourceError, KafkaError) as error:
            plain = _plain(error)
        raise plain

    return call


def rows_told_plainly(rows: Iterator[T]) -> Iterator[T]:
    """The same for an iterator."""
    try:
        yield from rows
    except (SourceError, KafkaError) as error:
        plain = _plain(error)
    else:
        return
    raise plain


def _plain(error: Exception) -> SourceError:
    match error:
        case SourceError():
            plain = error
        case InvalidSetting():
            plain = BadOption(error.message)
        case _:
            plain = BrokerError(str(error))
    plain.__cause__ = plain.__context__ = None
    return plain.with_traceback(None)
