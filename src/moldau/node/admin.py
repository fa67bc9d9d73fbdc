"""The admin port: over HTTP, a node tells whoever looks after it how it is, and does nothing else.

It is served on the node's own event loop: when that is stuck, nobody answers, which says it best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from moldau.node.config import CannotListen
from moldau.node.health import Health
from moldau.node.http import HEAD_BYTES_MAX, Asking, Question, Reply
from moldau.node.logs import get_logger
from moldau.node.metrics import CONTENT_TYPE, Metrics
from moldau.world.ports import Address, Clock, Connection, Listener, Network

log = get_logger(__name__)

CONNECTIONS_MAX: Final = 32
# How long a request may take to arrive, and its reply to be read.
ASK_MS_MAX: Final = 5_000
READ_MS_MAX: Final = 30_000
_BEAT_MS: Final = 1_000

Page = Callable[[], Reply]

# Below this, each group has a page by its name.
_GROUPS: Final = "/groups/"


class Admin:
    """The admin port of one node, and those who are connected to it."""

    def __init__(
        self,
        clock: Clock,
        health: Health,
        metrics: Metrics,
        group_page: Callable[[str], Reply],
        *,
        hosts: Iterable[str],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.clock = clock
        self.fail = fail
        """Told of an exception that nobody answers: the node stops."""
        self.hosts = frozenset(host.lower() for host in hosts)
        """How this machine is called by those who may ask, besides localhost and its addresses."""
        self.buffer = bytearray(HEAD_BYTES_MAX)
        self.connections: dict[AdminConnection, None] = {}
        self._health = health
        self._group_page = group_page
        self._pages: Mapping[str, Page] = {
            "/livez": lambda: _state(health.why_dead(clock.now_ms())),
            "/readyz": lambda: _state(health.why_not_ready(clock.now_ms())),
            "/metrics": lambda: Reply(200, metrics.render(), CONTENT_TYPE),
        }

    async def listen(self, network: Network, address: Address) -> Listener:
        """Begin to answer at `address`; CannotListen if that cannot be had."""
        try:
            return await network.listen(address, lambda: AdminConnection(self))
        except OSError as error:
            raise CannotListen("moldau.admin.listener", address, error) from error

    async def run(self) -> None:
        """Show that the loop comes round, and send away whoever takes too long."""
        while True:
            self._health.beat_ms = now_ms = self.clock.now_ms()
            for connection in list(self.connections):
                connection.close_if_overdue(now_ms)
            await self.clock.sleep_ms(_BEAT_MS)

    def answer(self, question: Question) -> Reply:
        """The page that is asked for."""
        if question.path.startswith(_GROUPS):
            return self._group_page(unquote(question.path.removeprefix(_GROUPS)))
        page = self._pages.get(question.path)
        if page is None:
            return Reply(404, f"There are {', '.join(self._pages)}, {_GROUPS}NAME.\n")
        return page()


class AdminConnection:
    """One connection, for one question; it implements the Receiver port."""

    __slots__ = ("_admin", "_asking", "_connection", "_deadline_ms")

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asking: Asking | None = Asking(admin.hosts)
        self._connection: Connection | None = None
        self._deadline_ms = 0

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        admin, now_ms = self._admin, self._admin.clock.now_ms()
        if len(admin.connections) >= CONNECTIONS_MAX:
            host = connection.peer.host
            log.limited("too many connections to the admin port", key=host, now_ms=now_ms, host=host)
            connection.abort()
            return
        self._connection = connection
        self._deadline_ms = now_ms + ASK_MS_MAX
        admin.connections[self] = None

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next; all connections share it, because it is taken out at once."""
        return memoryview(self._admin.buffer)

    def filled(self, count: int) -> None:
        """A part of the request has arrived; what comes behind it is passed over."""
        if self._asking is None or self._connection is None:
            return
        asked = self._asking.received(bytes(memoryview(self._admin.buffer)[:count]))
        if asked is None:
            return
        self._asking = None
        self._deadline_ms = self._admin.clock.now_ms() + READ_MS_MAX
        is_head = isinstance(asked, Question) and asked.is_head
        try:
            reply = self._admin.answer(asked) if isinstance(asked, Question) else asked
        except Exception as error:  # noqa: BLE001  a bug stops the node, it does not just drop who asked
            self._admin.fail(error)
            return
        self._connection.send([reply.encode(is_head=is_head)])
        self._connection.close()

    def pause_sending(self) -> None:
        """There is one reply, so that nothing piles up."""

    def resume_sending(self) -> None:
        """There is one reply, so that nothing piles up."""

    def disconnected(self, error: Exception | None) -> None:
        """Whoever asked is gone."""
        self._connection = None
        self._admin.connections.pop(self, None)

    def close_if_overdue(self, now_ms: int) -> None:
        """End the connection of somebody who does not ask, or does not read."""
        if self._connection is not None and now_ms >= self._deadline_ms:
            self._connection.abort()


def _state(why_not: str | None) -> Reply:
    return Reply(200, "ok\n") if why_not is None else Reply(503, f"{why_not}\n")
