"""The shape of every coordinator: one shard for each partition of its internal topic, asked by the node.

    decide  ->  append  ->  apply at once  ->  committed  ->  reply

A shard's state has two parts. *Logged* state changes only in `apply` and `end_transaction`, whether a record
was decided just now or is read from the log after a restart. *Session* state (who waits for whom, who was
heard of when) is changed by deciding, is in no log, and is gone when the shard is.

The node calls a shard in plain calls, one after the other. Right after a decision it applies the decision's
records, in order; it appends those of one loop tick together, and gives replies once everything that the
decision saw is committed. If an append fails, or another broker takes over, the whole shard is dropped and
loaded again, so that a shard never has to undo anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple, Protocol, TypeVar

from moldau.metadata.image import Delta, Image, Resource, ResourceType
from moldau.model.decision import Decision
from moldau.model.draws import Draws
from moldau.model.errors import KafkaError
from moldau.model.ids import ProducerId
from moldau.model.settings.resolve import Layer, Settings, Source, resolve
from moldau.model.settings.setting import Scope
from moldau.wire.message import CoordinatorKey, CoordinatorValue, Request, Response
from moldau.wire.messages.internal_logs import CoordinatorLog

T = TypeVar("T")

NO_PRODUCER: Final = ProducerId(-1)


class Ticket:
    """Who asks: what a decision may look at, and under which a reply that has to wait is given later.

    The node makes one for each request, of a class of its own. A shard may keep it, compare it by identity
    and name it in a `Reply`; whether anybody still waits for that is no concern of the shard's.
    """

    __slots__ = ("client_host", "client_id", "connection", "version")

    def __init__(self, *, version: int, client_id: str, client_host: str, connection: int = 0) -> None:
        self.connection = connection
        """Rises from one accepted connection to the next, so that what came over an older one can be told."""
        self.version = version
        self.client_id = client_id
        self.client_host = client_host


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's log; without a value it takes away what an earlier one said."""

    key: CoordinatorKey
    value: CoordinatorValue | None


class Reply(NamedTuple):
    """An effect: the reply to a request that was parked, committed like any other."""

    ticket: Ticket
    reply: Response | KafkaError


# What a shard decides: the reply is None if the request is parked, or nobody asked.
ShardDecision = Decision[T, CoordinatorRecord, Reply]


class Surroundings:
    """What holds around a shard until the metadata changes; the node makes one for each published view."""

    def __init__(self, image: Image, settings: Settings, layers: tuple[Layer, ...]) -> None:
        self.image = image
        self.settings = settings
        """Those of this broker."""
        self._layers = layers
        self._of_groups: dict[str, Settings] = {}

    def group_settings(self, group_id: str) -> Settings:
        """The settings of a group, which has some of its own or takes the broker's."""
        texts = self.image.configs.get(Resource(ResourceType.GROUP, group_id))
        if texts is None:
            return self._group_defaults
        found = self._of_groups.get(group_id)
        if found is None:
            found = resolve(Scope.GROUP, Layer(Source.GROUP, texts), *self._layers)
            self._of_groups[group_id] = found
        return found

    @cached_property
    def _group_defaults(self) -> Settings:
        return resolve(Scope.GROUP, *self._layers)


class Circumstances(NamedTuple):
    """What a decision depends on besides the shard and the request."""

    # Of a clock that never jumps: for deadlines.
    now_ms: int
    # The calendar's, which may jump: for timestamps that are written down.
    wall_ms: int
    # Random values, the same in every run under the same seed.
    draws: Draws
    around: Surroundings
    # How large a batch the topic takes. A decision is one batch if it fits, and is split between records if
    # not; so a record that a client can make larger than this must be refused.
    batch_bytes_max: int

    @property
    def image(self) -> Image:
        """What this broker knows of the cluster."""
        return self.around.image

    @property
    def settings(self) -> Settings:
        """The settings of this broker."""
        return self.around.settings


class Shard(Protocol):
    """One partition's share of a coordinator's state."""

    def decide(
        self, request: Request, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Decide on a request; a reply of None comes later, as a `Reply` of another decision.

        Whatever raises KafkaError has changed nothing.
        """
        ...

    def apply(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER) -> None:
        """Take a record into the logged state; one with a producer counts when its transaction commits."""
        ...

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Take the marker of a transaction into the logged state."""
        ...

    def loaded(self, circumstances: Circumstances) -> ShardDecision[None]:
        """All of the log has been applied: begin the sessions of whoever is in it."""
        ...

    def metadata_changed(self, delta: Delta, circumstances: Circumstances) -> ShardDecision[None]:
        """The cluster has changed; `circumstances` are those after it."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When `deadlines_passed` has something to do; None if never. Cheap: asked after every decision."""
        ...

    def deadlines_passed(self, circumstances: Circumstances) -> ShardDecision[None]:
        """Do what is due by now; called again at once if there is more, so that one call stays short."""
        ...


class Draft:
    """A decision in the making, for what takes several steps; they see the logged state as it was before."""

    __slots__ = ("effects", "records")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.effects: list[Reply] = []

    def reply(self, ticket: Ticket, reply: Response | KafkaError) -> None:
        """Answer a request, the one that is being decided or one that was parked."""
        self.effects.append(Reply(ticket, reply))

    def decision(self, reply: T) -> ShardDecision[T]:
        """The decision, with the reply to the request that is being decided."""
        return Decision(reply, tuple(self.records), tuple(self.effects))


class ShardKind(NamedTuple):
    """What the node has to know of a kind of coordinator."""

    # Its topic, and how the records there are framed.
    log: CoordinatorLog
    make: Callable[[], Shard]
    # The version in which a value is written.
    version_of: Callable[[CoordinatorValue], int]
