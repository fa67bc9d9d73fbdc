"""A part of the group coordinator: the requests, records and deadlines that a kind of group brings along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Never, Protocol

from moldau.coordinator.shard import Circumstances, Draft, ShardDecision, Ticket
from moldau.metadata.image import Delta
from moldau.wire.message import CoordinatorKey, Request, Response

# Each takes what it is registered under; a table of many types cannot say so.
Decider = Callable[[Never, Ticket, Circumstances], ShardDecision[Response | None]]
Applier = Callable[[Never, Never], None]
Alarm = Callable[[Never, Draft, Circumstances], None]


class Part(Protocol):
    """What a shard of groups is made of."""

    @property
    def deciders(self) -> Mapping[type[Request], Decider]:
        """Who decides on a request, by its type: `decide(request, ticket, circumstances)`."""
        ...

    @property
    def appliers(self) -> Mapping[type[CoordinatorKey], Applier]:
        """Who takes in a record, by the type of its key: `apply(key, value)`, the value None if it goes."""
        ...

    @property
    def alarms(self) -> Mapping[type[object], Alarm]:
        """What to do when a deadline passes, by the type of what the timer says: `(what, draft, ...)`."""
        ...

    def loaded(self, draft: Draft, circumstances: Circumstances) -> None:
        """Begin the sessions of whoever is in the log."""
        ...

    def metadata_changed(self, delta: Delta, draft: Draft, circumstances: Circumstances) -> None:
        """See what a change of the cluster means for the groups."""
        ...
