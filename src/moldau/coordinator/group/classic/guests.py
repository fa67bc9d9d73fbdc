"""How members of the classic kind are answered in a group of another kind, while it is being migrated."""

from __future__ import annotations

from typing import Protocol

from moldau.coordinator.shard import Circumstances, ShardDecision, Ticket
from moldau.wire.message import Response
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)


class Guests(Protocol):
    """Speaks the classic protocol for groups of one other kind, none of which is empty."""

    @property
    def may_become_classic(self) -> bool:
        """Whether an empty group of the kind becomes a classic one when a classic member joins."""
        ...

    def join(
        self, request: JoinGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """A classic member joins the group."""
        ...

    def sync(
        self, request: SyncGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """A classic member asks for its assignment."""
        ...

    def heartbeat(
        self, request: HeartbeatRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """A classic member is alive."""
        ...

    def leave(
        self, request: LeaveGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Classic members leave."""
        ...
