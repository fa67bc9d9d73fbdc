"""One partition of `__consumer_offsets`: its groups, their offsets, and who decides about which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.coordinator.group.group import Group
from moldau.coordinator.group.part import Alarm, Applier, Decider, Part
from moldau.coordinator.shard import (
    Circumstances,
    CoordinatorRecord,
    Draft,
    ShardDecision,
    Ticket,
)
from moldau.coordinator.timers import Timers
from moldau.metadata.image import Delta
from moldau.model.ids import Offset, ProducerId
from moldau.wire.message import CoordinatorKey, Request, Response

# How many deadlines one call looks at before others get their turn.
_ALARMS_PER_CALL_MAX: Final = 100


class GroupState:
    """What the parts of a shard share."""

    __slots__ = ("groups", "timers")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.timers: Timers[object] = Timers()


class GroupShard:
    """The groups of one partition; it implements the Shard protocol."""

    def __init__(self, state: GroupState, parts: Sequence[Part]) -> None:
        self._state = state
        self._parts = parts
        self._deciders: dict[type[Request], Decider] = {}
        self._appliers: dict[type[CoordinatorKey], Applier] = {}
        self._alarms: dict[type[object], Alarm] = {}
        for part in parts:
            self._deciders |= part.deciders
            self._appliers |= part.appliers
            self._alarms |= part.alarms

    def decide(
        self, request: Request, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Decide on a request of one of the parts."""
        return self._deciders[type(request)](request, ticket, circumstances)  # type: ignore[arg-type]

    def apply(self, record: CoordinatorRecord, *, offset: Offset, producer_id: ProducerId) -> None:
        """Take a record into the logged state; records of kinds that nobody knows are passed over."""
        applier = self._appliers.get(type(record.key))
        if applier is not None:
            applier(record.key, record.value, offset, producer_id)  # type: ignore[arg-type]

    def loaded(self, circumstances: Circumstances) -> ShardDecision[None]:
        """Begin the sessions of the members that the log knows."""
        draft: Draft[None] = Draft()
        for part in self._parts:
            part.loaded(draft, circumstances)
        return draft.decision(None)

    def metadata_changed(self, delta: Delta, circumstances: Circumstances) -> ShardDecision[None]:
        """See what a change of the cluster means for the groups."""
        draft: Draft[None] = Draft()
        for part in self._parts:
            part.metadata_changed(delta, draft, circumstances)
        return draft.decision(None)

    def next_deadline_ms(self) -> int | None:
        """When there is something to look at."""
        return self._state.timers.next_ms()

    def deadlines_passed(self, circumstances: Circumstances) -> ShardDecision[None]:
        """Do what is due, of which the first that decides anything ends the call: the next must see it."""
        draft: Draft[None] = Draft()
        for _ in range(_ALARMS_PER_CALL_MAX):
            what = self._state.timers.due(circumstances.now_ms)
            if what is None:
                break
            self._alarms[type(what)](what, draft, circumstances)  # type: ignore[arg-type]
            if draft.records:
                break
        return draft.decision(None)
