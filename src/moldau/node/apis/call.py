"""A request on its way to its response, and the parts of the node that answer it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from moldau.metadata.view import ClusterView
from moldau.model.ids import ClusterId, NodeId
from moldau.node.config import ListenerConfig, NodeConfig
from moldau.node.controller import ActiveController
from moldau.node.controller_channel import ControllerChannel
from moldau.node.coordinators import Coordinators
from moldau.node.fetch_sessions import FetchSessions
from moldau.node.metadata import Publisher
from moldau.node.metrics import Metrics
from moldau.node.partitions import Partitions
from moldau.node.producer_ids import ProducerIds
from moldau.node.quorum import QuorumNode
from moldau.node.quotas import Quotas
from moldau.node.security import Authorizer, Operation, Principal, ResourceType
from moldau.wire.framing import Reply
from moldau.wire.framing import Request as Received
from moldau.wire.message import Request, Response
from moldau.wire.messages.api_versions import ApiVersion
from moldau.world.ports import World


@dataclass(slots=True)
class Parts:
    """What handlers may use; a node has one."""

    world: World
    config: NodeConfig
    cluster_id: ClusterId
    quorum: QuorumNode
    controller: ActiveController | None
    publisher: Publisher
    partitions: Partitions
    groups: Coordinators
    channel: ControllerChannel
    sessions: FetchSessions
    producer_ids: ProducerIds
    quotas: Quotas
    metrics: Metrics
    authorizer: Authorizer
    api_versions: Mapping[bool, Sequence[ApiVersion]]
    """What is served, by whether it is on a controller's listener."""

    @property
    def node_id(self) -> NodeId:
        """Who this node is."""
        return self.config.node_id

    @property
    def view(self) -> ClusterView:
        """What this node knows of the cluster, and its parts have caught up with."""
        return self.publisher.view


class Asker(Protocol):
    """Where a call came from, and where its response goes."""

    def answered(self, call: Call, response: Response | None) -> None:
        """Send the response; None if the client expects none."""
        ...

    def answered_encoded(self, call: Call, response: bytes) -> None:
        """Send a response that the controller has encoded, header and body."""
        ...

    def break_off(self, why: str) -> None:
        """End the connection, where Kafka does so instead of answering."""
        ...


class Call:
    """One request, from whom it came, and how it is answered."""

    __slots__ = (
        "asker",
        "began_us",
        "body",
        "host",
        "listener",
        "place",
        "principal",
        "received",
        "throttle_ms",
        "version",
    )

    def __init__(
        self,
        received: Received,
        body: Request,
        *,
        asker: Asker,
        principal: Principal,
        host: str,
        listener: ListenerConfig,
        began_us: int,
    ) -> None:
        self.received = received
        self.version = received.version
        self.body = body
        self.asker = asker
        self.principal = principal
        self.host = host
        self.listener = listener
        self.began_us = began_us
        self.throttle_ms = 0
        self.place: Reply
        """Of the reply among the others of its connection; given by the asker that has one."""

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.received.client_id or ""

    def may(self, parts: Parts, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the one who asks is allowed to."""
        return parts.authorizer.authorize(self.principal, self.host, operation, kind, name)

    def raw(self) -> bytes:
        """The request as it came, header and body; to be taken before the handler first waits."""
        frame = self.received.frame
        return bytes(memoryview(frame.buffer)[frame.start : frame.end])

    def answer(self, response: Response | None) -> None:
        """Give the response; for handlers that do not simply return it."""
        self.asker.answered(self, response)


# Answers at once, or later; a handler that gives None answers through its call.
Answer = Response | Coroutine[object, object, Response | None] | None
Handler = Callable[[Parts, Call], Answer]
