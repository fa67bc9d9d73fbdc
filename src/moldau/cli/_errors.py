"""How a command fails: one line on stderr, and an exit code that scripts can tell apart."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from moldau.model.errors import ErrorCode, KafkaError


class Failure(click.ClickException):
    """What ends a command, in a line; each kind has an exit code of its own."""

    exit_code = 1

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        # On one line, whatever a broker says.
        self.reason = " ".join(reason.split())
        super().__init__(self.reason if code is None else f"{self.reason} ({code.name})")


class NotFound(Failure):
    """There is no such topic, partition, broker or setting."""

    exit_code = 3


class NotAllowed(Failure):
    """Who asked is not known, or may not do this."""

    exit_code = 4


class OutOfReach(Failure):
    """The cluster cannot be reached, or took too long."""

    exit_code = 5


_KINDS: Final[dict[ErrorCode, type[Failure]]] = {
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.LOG_DIR_NOT_FOUND,
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            ErrorCode.VOTER_NOT_FOUND,
        ),
        NotFound,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            ErrorCode.ILLEGAL_SASL_STATE,
        ),
        NotAllowed,
    ),
    **dict.fromkeys(
        (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
        OutOfReach,
    ),
}


def failure_of(error: KafkaError, where: object | None = None, *, what: str = "") -> Failure:
    """An error of the cluster as its user is told it, after `what` could not be done."""
    place = "" if where is None or str(where) in error.message else f"{where}: "
    advice = getattr(error, "advice", "")
    reason = f"{what}{place}{as_sentence(error.message)} {advice}"
    return _KINDS.get(error.code, Failure)(reason, error.code)


def as_sentence(text: str) -> str:
    """The text with a full stop at its end, unless it has one."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def unreachable(why: str) -> Failure:
    """No broker answered."""
    return OutOfReach(f"{why} Is it running there? -b says where to look.")


def no_such_topic(name: str, others: Iterable[str] = ()) -> Failure:
    """A topic was asked for that does not exist; perhaps one of the others was meant."""
    near = difflib.get_close_matches(name, list(others), n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "moldau topic list shows all."
    return NotFound(f"There is no topic '{name}'. {hint}")


def too_large(why: object) -> click.UsageError:
    """Something was asked for that no request can say, such as a number of more bits than its field has."""
    return click.UsageError(f"That does not fit into a request: {why}.")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what a cluster or the way to it can cause into a Failure; a mistake of ours stays a traceback."""
    from moldau.client.errors import ClientError, Unreachable
    from moldau.model.settings.setting import InvalidSetting
    from moldau.wire.compiler import UnencodableMessage
    from moldau.world.ports import ConnectionLost, InvalidTls

    try:
        yield
    except InvalidSetting as error:
        raise click.UsageError(error.message) from error
    except InvalidTls as error:
        raise Failure(str(error)) from error
    except UnencodableMessage as error:
        raise too_large(error) from error
    except Unreachable as error:
        raise unreachable(error.message) from error
    except ClientError as error:
        raise failure_of(error, error.where) from error
    except KafkaError as error:
        raise failure_of(error) from error
    except (ConnectionLost, TimeoutError) as error:
        raise OutOfReach(f"The connection was lost: {error}") from error
