"""One partition of `__consumer_offsets`: its groups, their offsets, and who decides about which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.coordinator.group.catalogue import Catalogue
from moldau.coordinator.group.classic.guests import Guests
from moldau.coordinator.group.classic.protocol import ClassicProtocol
from moldau.coordinator.group.consumer.guests import ConsumerGuests
from moldau.coordinator.group.consumer.protocol import ConsumerProtocol
from moldau.coordinator.group.group import GroupKind
from moldau.coordinator.group.migration import Migration
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.group.part import Alarm, Applier, Decider, Part
from moldau.coordinator.group.records import version_of
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import (
    NO_PRODUCER,
    Circumstances,
    CoordinatorRecord,
    Draft,
    ShardDecision,
    ShardKind,
    Ticket,
)
from moldau.metadata.image import Delta
from moldau.model.ids import ProducerId
from moldau.wire.message import CoordinatorKey, Request, Response
from moldau.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.internal_logs import GROUP_LOG

# How many deadlines one call looks at before others get their turn.
_ALARMS_PER_CALL_MAX: Final = 100


class GroupShard:
    """The groups of one partition; it implements the Shard protocol."""

    def __init__(self) -> None:
        self.state = GroupState()
        self._offsets = Offsets(self.state)
        guests: dict[GroupKind, Guests] = {}
        classic = ClassicProtocol(self.state, guests)
        migration = Migration(classic)
        self.consumer = ConsumerProtocol(self.state, migration)
        guests[GroupKind.CONSUMER] = ConsumerGuests(self.consumer, classic, migration)
        self._parts: Sequence[Part] = (self._offsets, classic, self.consumer, Catalogue(self.state))
        self._deciders: dict[type[Request], Decider] = {}
        self._appliers: dict[type[CoordinatorKey], Applier] = {}
        self._alarms: dict[type[object], Alarm] = {}
        for part in self._parts:
            self._deciders |= part.deciders
            self._appliers |= part.appliers
            self._alarms |= part.alarms

    def decide(
        self, request: Request, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Decide on a request of one of the parts."""
        return self._deciders[type(request)](request, ticket, circumstances)  # type: ignore[arg-type]

    def apply(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER) -> None:
        """Take a record into the logged state; records of kinds that nobody knows are passed over."""
        key, value = record
        if producer_id != NO_PRODUCER and isinstance(key, OffsetCommitKey) and value is not None:
            # Only offsets are committed in transactions.
            assert isinstance(value, OffsetCommitValue)
            self._offsets.stage(key, value, producer_id)
            return
        applier = self._appliers.get(type(key))
        if applier is not None:
            applier(key, value)  # type: ignore[arg-type]

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Commit or drop the offsets that a transaction has staged."""
        self._offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, circumstances: Circumstances) -> ShardDecision[None]:
        """Begin the sessions of the members that the log knows."""
        draft = Draft()
        for part in self._parts:
            part.loaded(draft, circumstances)
        return draft.decision(None)

    def metadata_changed(self, delta: Delta, circumstances: Circumstances) -> ShardDecision[None]:
        """See what a change of the cluster means for the groups."""
        draft = Draft()
        for part in self._parts:
            part.metadata_changed(delta, draft, circumstances)
        return draft.decision(None)

    def next_deadline_ms(self) -> int | None:
        """When there is something to look at."""
        return self.state.timers.next_ms()

    def deadlines_passed(self, circumstances: Circumstances) -> ShardDecision[None]:
        """Do what is due, of which the first that decides anything ends the call: the next must see it."""
        draft = Draft()
        for _ in range(_ALARMS_PER_CALL_MAX):
            what = self.state.timers.due(circumstances.now_ms)
            if what is None:
                break
            self._alarms[type(what)](what, draft, circumstances)  # type: ignore[arg-type]
            if draft.records:
                break
        return draft.decision(None)


GROUP_COORDINATOR: Final = ShardKind(log=GROUP_LOG, make=GroupShard, version_of=version_of)
