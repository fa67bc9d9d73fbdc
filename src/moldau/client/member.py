"""What a member of a group wants done next, in either protocol: the words between its core and its shell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition
from moldau.wire.message import Request, Response

# After these the group knows the member no more: what it reads may be read by others already.
LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH}
)


@dataclass(frozen=True, slots=True)
class Topics:
    """What a member subscribes to: topics by name, or all whose names match a pattern."""

    names: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send this to the coordinator, and tell the member what comes of it."""

    request: Request
    reply: type[Response]
    # None: as long as any request.
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Learn:
    """Ask the cluster about these topics; None: about all."""

    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until then, or until something else happens."""

    until_ms: int | None = None


Step = Send | Learn | Wait


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the application is to own; the rest is given up, or is `lost` already."""

    partitions: tuple[TopicPartition, ...]
    is_lost: bool = False


class Member(Protocol):
    """A member of a group as a core: it decides, and a shell sends, waits and reads for it."""

    member_id: str
    # What an offset is committed with; -1 while it is no member.
    epoch: int
    # What ends the membership; it will not pass by itself.
    error: Exception | None
    # What is to be handed over at the next poll; None: nothing.
    wanted: Wanted | None

    def step(self, now_ms: int) -> Step:
        """What to do next."""
        ...

    def answered(self, response: Response, now_ms: int) -> None:
        """The coordinator has answered what was sent last."""
        ...

    def failed(self, now_ms: int, backoff_ms: int) -> None:
        """Nothing came of what was sent last; it is worth another try after a while."""
        ...

    def learned(self, now_ms: int, backoff_ms: int) -> None:
        """The cluster was asked."""
        ...

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """The application has handed over, and owns just these."""
        ...

    def subscribe(self, topics: Topics) -> None:
        """Want other topics from now on."""
        ...

    def stall(self) -> None:
        """The application does not poll: leave, until it does."""
        ...

    def farewell(self) -> Send | None:
        """What to send when the consumer is closed."""
        ...
