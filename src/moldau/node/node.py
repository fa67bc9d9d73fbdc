"""A node of the cluster: a list of its parts, and their lives from the first to the last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from moldau.coordinator.group.shard import GROUP_COORDINATOR
from moldau.log import checkpoints
from moldau.metadata.image import Delta, Image
from moldau.metadata.view import ClusterView
from moldau.model.ids import ClusterId, DirectoryId, Offset
from moldau.model.settings.resolve import Layer, Settings, Source, find, resolve
from moldau.model.settings.setting import Scope as SettingScope
from moldau.model.settings.table import (
    BROKER_SESSION_TIMEOUT_MS,
    CONNECTIONS_MAX_IDLE_MS,
    LOG_CLEANER_BACKOFF_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    SOCKET_REQUEST_MAX_BYTES,
)
from moldau.node.admin import Admin
from moldau.node.apis.call import Parts
from moldau.node.apis.table import BROKER_APIS, CONTROLLER_APIS, advertised
from moldau.node.config import CannotListen, ListenerConfig, NodeConfig
from moldau.node.connections import Limits, Server
from moldau.node.controller import ActiveController
from moldau.node.controller_channel import ControllerChannel
from moldau.node.coordinators import Coordinators
from moldau.node.fetch_sessions import FetchSessions
from moldau.node.health import Health
from moldau.node.housekeeping import Housekeeping, Intervals
from moldau.node.logs import get_logger
from moldau.node.measures import measure
from moldau.node.metadata import MetadataMachine, Publisher
from moldau.node.metrics import LoopLag, Metrics
from moldau.node.partitions import Partitions
from moldau.node.producer_ids import ProducerIds
from moldau.node.quorum import QuorumConfig, QuorumNode
from moldau.node.quotas import Quotas
from moldau.node.rebalances import rebalances_page
from moldau.node.registration import Registration
from moldau.node.security import AllowAll
from moldau.node.storage import open_directory, read_bootstrap
from moldau.raft.quorum import Identity, Timing
from moldau.raft.voters import Endpoint, ReplicaKey, Voter
from moldau.world.ports import Address, DiskFailed, Scope, World

log = get_logger(__name__)

CONTROLLER_TIMEOUT_MS: Final = 30_000
# How long a broker waits to be let go before it goes anyway.
_LEAVE_TIMEOUT_MS: Final = 10_000
_UNFINISHED_BYTES_MAX: Final = 512 * 1024 * 1024
_SESSION_ID_MAX: Final = 2**31 - 1


class Node:
    """One process of a cluster: a broker, a controller, or both."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        *,
        metrics: Metrics | None = None,
        cluster_id: ClusterId | None = None,
    ) -> None:
        self.config = config
        self.on_ready: Callable[[], None] | None = None
        """Told once, when clients are served."""
        self.metrics = metrics or Metrics()
        """All that is measured, along with what whoever made the node knows of the process."""
        self.health = Health(self._obstacle)
        self.admin_address: Address | None = None
        """Where the admin port is, once it is open."""
        self._world = world
        self._cluster_id = cluster_id
        """The only cluster that will do; None if any will."""
        self._failure: asyncio.Future[BaseException] | None = None

    async def run(self) -> None:
        """Serve until cancelled; a broker then leaves in an orderly way."""
        try:
            identity = open_directory(self._world.disk, self.config, cluster_id=self._cluster_id)
        except OSError as error:
            raise DiskFailed(f"the data directory cannot be opened: {error}") from error
        directory_id = identity.directory_id
        assert directory_id is not None, "a directory that was formatted has an id"
        self._assemble(identity.cluster_id, directory_id)
        self._failure = asyncio.get_running_loop().create_future()
        async with self._world.tasks.scope() as scope:
            await self._start(scope)
            try:
                # Somebody must wait for what is thrown where nobody can answer it.
                raise await self._failure
            except asyncio.CancelledError:
                self.health.is_leaving = True
                # A node in which something failed goes as it is: what it would write now cannot be trusted.
                if not scope.has_failed:
                    await self._leave()
                raise

    # ------------------------------------------------------------ the parts

    def _assemble(self, cluster_id: str, directory_id: DirectoryId) -> None:
        world, config = self._world, self.config
        settings = resolve(SettingScope.BROKER, Layer(Source.STATIC, config.static))

        def number(name: str) -> int:
            value = settings[find(SettingScope.BROKER, name)]
            assert isinstance(value, int), (name, value)
            return value

        self.machine = MetadataMachine(on_role=lambda _: self._on_quorum(), on_applied=self._on_quorum)
        self.quorum = QuorumNode(
            world,
            Identity(cluster_id, self._voter(directory_id), config.quorum_bootstrap),  # type: ignore[arg-type]
            self.machine,
            QuorumConfig(
                timing=Timing(
                    election_timeout_ms=number("controller.quorum.election.timeout.ms"),
                    election_backoff_max_ms=number("controller.quorum.election.backoff.max.ms"),
                    fetch_timeout_ms=number("controller.quorum.fetch.timeout.ms"),
                    retry_backoff_ms=number("controller.quorum.retry.backoff.ms"),
                ),
                request_timeout_ms=number("controller.quorum.request.timeout.ms"),
            ),
        )
        view = ClusterView(Image(), cluster_id, config.node_id, config.static)  # type: ignore[arg-type]
        self.partitions = Partitions(
            world,
            config.node_id,
            flush_seconds=self.metrics.histogram("moldau_flush_seconds", "How long a flush took."),
        )
        self.groups = Coordinators(world, GROUP_COORDINATOR, self.partitions)
        self.quotas = Quotas(
            window_count=number("quota.window.num"), window_ms=number("quota.window.size.seconds") * 1000
        )
        self.publisher = Publisher(self.machine, view, [self])
        self.channel = ControllerChannel(
            self.quorum, self.quorum.peers, world.clock, timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        self.controller = None
        if config.is_controller:
            self.controller = ActiveController(
                world,
                self.quorum,
                self.machine,
                cluster_id=cluster_id,  # type: ignore[arg-type]
                node_id=config.node_id,
                static=config.static,
                bootstrap=read_bootstrap(world.disk),
            )
        self.registration = Registration(
            world,
            config,
            self.channel,
            cluster_id=cluster_id,  # type: ignore[arg-type]
            directory_id=directory_id,
            previous_epoch=checkpoints.read_clean_shutdown(world.disk) or -1,
            heartbeat_ms=number("broker.heartbeat.interval.ms"),
            metadata_offset=lambda: Offset(self.publisher.view.image.offset),
        )
        self._limits = _limits_of(settings)
        self.parts = Parts(
            world=world,
            config=config,
            cluster_id=cluster_id,  # type: ignore[arg-type]
            quorum=self.quorum,
            controller=self.controller,
            publisher=self.publisher,
            partitions=self.partitions,
            groups=self.groups,
            channel=self.channel,
            sessions=FetchSessions(
                number("max.incremental.fetch.session.cache.slots"),
                lambda: 1 + world.randomness.below(_SESSION_ID_MAX),
            ),
            producer_ids=ProducerIds(
                self.channel, broker_id=config.node_id, broker_epoch=lambda: self.registration.epoch
            ),
            quotas=self.quotas,
            metrics=self.metrics,
            authorizer=AllowAll(),
            api_versions={False: advertised(BROKER_APIS), True: advertised(CONTROLLER_APIS)},
        )

    def _voter(self, directory_id: DirectoryId) -> Voter:
        listener = self.config.controller_listener
        at = listener.advertised if listener is not None else self.config.broker_listeners[0].advertised
        name = self.config.controller_listener_name
        return Voter(ReplicaKey(self.config.node_id, directory_id), (Endpoint(name, at.host, at.port),))

    # ------------------------------------------------------------ their lives

    async def _start(self, scope: Scope) -> None:
        config = self.config
        server = self.server = Server(self.parts, scope, self._limits, fail=self._fail)
        measure(self.metrics, self.parts, server, self.health)
        if config.admin is not None:
            await self._open_admin_port(scope, config.admin)
        self.partitions.load()
        scope.start(self.quorum.run(), name="quorum")
        # A controller must be heard before there is a leader; clients come when there is something to say.
        for listener in config.listeners:
            if listener.is_controller:
                await self._listen(server, listener)
        if self.controller is not None:
            scope.start(self.controller.run(), name="controller")
        scope.start(self._publish(), name="publisher")
        if config.is_broker:
            housekeeping = Housekeeping(
                self._world, self.partitions, lambda: _intervals_of(self.publisher.view.broker_settings)
            )
            scope.start(self.partitions.run_flushes(), name="flushes")
            scope.start(housekeeping.run_expiry(server), name="expiry")
            scope.start(housekeeping.run_checkpoints(), name="checkpoints")
            scope.start(housekeeping.run_retention(), name="retention")
            scope.start(housekeeping.run_compaction(), name="compaction")
            scope.start(housekeeping.run_scrubbing(), name="scrubbing")
            scope.start(housekeeping.run_loop_lag(LoopLag(self.metrics)), name="loop lag")
            scope.start(self.groups.run_loads(), name="groups' loads")
            scope.start(self.groups.run_appends(), name="groups' appends")
            scope.start(self.groups.run_deadlines(), name="groups' deadlines")
            scope.start(self.registration.run(), name="registration")
            await self.publisher.until(self._is_unfenced)
            self.partitions.set_strays_aside(self.publisher.view)
            # What recovery found is committed before anybody asks, so that no high watermark goes back.
            await self.partitions.flushed()
            for listener in config.broker_listeners:
                await self._listen(server, listener)
        self.health.is_serving = True
        if self.on_ready is not None:
            self.on_ready()

    async def _publish(self) -> None:
        """Act on the metadata, for a broker from its registration on: what was before is not its present."""
        epoch = await self.registration.registered() if self.config.is_broker else None

        def is_history(image: Image) -> bool:
            broker = image.brokers.get(self.config.node_id)
            return epoch is not None and (broker is None or broker.epoch < epoch)

        await self.publisher.run(is_history)

    async def _listen(self, server: Server, listener: ListenerConfig) -> None:
        apis = CONTROLLER_APIS if listener.is_controller else BROKER_APIS
        try:
            await self._world.network.listen(
                listener.bind, lambda: server.accept(listener, apis), tls=listener.tls
            )
        except OSError as error:
            raise CannotListen(f"Listener {listener.name}", listener.bind, error) from error

    async def _open_admin_port(self, scope: Scope, address: Address) -> None:
        hosts = [address.host, *(listener.advertised.host for listener in self.config.listeners)]
        admin = Admin(
            self._world.clock,
            self.health,
            self.metrics,
            lambda group_id: rebalances_page(self.groups, group_id),
            hosts=hosts,
            fail=self._fail,
        )
        scope.start(admin.run(), name="admin port")
        self.admin_address = (await admin.listen(self._world.network, address)).address

    def _obstacle(self) -> str | None:
        """What keeps a node from serving that has opened everything."""
        if not self.config.is_broker:
            return None if self.quorum.quorum.leader is not None else "the quorum has no leader"
        view = self.publisher.view
        if not self._is_unfenced(view):
            return "the controller has fenced this broker"
        # A broker that is cut off is fenced as well, and is the last to hear of it.
        silent_ms = self._world.clock.now_ms() - self.registration.heard_ms
        if silent_ms > view.broker_settings[BROKER_SESSION_TIMEOUT_MS]:
            return f"the controller has not answered for {silent_ms} ms"
        return None

    def _is_unfenced(self, view: ClusterView) -> bool:
        broker = view.image.brokers.get(self.config.node_id)
        return broker is not None and broker.epoch == self.registration.epoch and not broker.is_fenced

    def _fail(self, error: BaseException) -> None:
        self.health.has_failed = True
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)

    def _on_quorum(self) -> None:
        if not self.quorum.is_open:
            return
        self.machine.epoch_before = self.quorum.view.epoch_before
        if self.controller is not None:
            self.controller.wake()
        self.channel.wake()

    async def follow(self, view: ClusterView, delta: Delta) -> None:
        """Take over what the metadata says of this node."""
        changes = delta.local_changes(self.config.node_id)
        await self.partitions.forget(changes.closed)
        await self.partitions.follow(view, (*changes.led, *changes.followed, *changes.updated))
        self.groups.follow(view, delta, changes)
        for resource in delta.configs:
            for topic in view.topics_configured_by(resource):
                self.partitions.configure(view, topic)
        if delta.configs:
            self.server.limits = _limits_of(view.broker_settings)
        if delta.quotas:
            self.quotas.configure(view.image.quotas)
        if self.config.node_id in delta.brokers:
            self.registration.wake()

    async def _leave(self) -> None:
        """Hand over what others can take, and close everything properly."""
        if not self.config.is_broker or self.registration.epoch < 0:
            return
        with contextlib.suppress(TimeoutError, DiskFailed):
            async with self._world.clock.timeout_ms(_LEAVE_TIMEOUT_MS):
                await self.registration.leave()
        await self.partitions.close(self.registration.epoch)
        log.info("all logs are closed")


def _limits_of(settings: Settings) -> Limits:
    return Limits(
        request_bytes_max=settings[SOCKET_REQUEST_MAX_BYTES],
        connections_max=settings[MAX_CONNECTIONS],
        connections_per_host_max=settings[MAX_CONNECTIONS_PER_IP],
        idle_ms_max=settings[CONNECTIONS_MAX_IDLE_MS],
        unfinished_bytes_max=_UNFINISHED_BYTES_MAX,
    )


def _intervals_of(settings: Settings) -> Intervals:
    # Some may be set to nothing at all, which would leave nobody else a turn.
    return Intervals(
        checkpoint_ms=max(settings[REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS], 1),
        retention_ms=settings[LOG_RETENTION_CHECK_INTERVAL_MS],
        compaction_ms=max(settings[LOG_CLEANER_BACKOFF_MS], 1),
    )
