"""A cluster of brokers for as long as a test needs it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, ParamSpec, Self

from moldau.testing.broker import OWN_SETTINGS, Broker, BrokerFailed
from moldau.testing.folders import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

P = ParamSpec("P")
SettingValue = str | int | float | bool

START_TIMEOUT_S: Final = 60.0

# A single broker need not wait for others, and a test not for consumers that might still come. Who
# joins a group less than the interval after it was assigned gets partitions with a later heartbeat only.
_SETTINGS: Final[Mapping[str, SettingValue]] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


def cluster(
    *,
    brokers: int = 1,
    settings: Mapping[str, SettingValue] | None = None,
    folder: str | os.PathLike[str] | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Cluster:
    """Brokers on ports of their own, for `with` and `async with`; all is gone when the block ends.

    `settings` are those of server.properties. In `folder` data and logs stay, for a later cluster too.
    """
    return Cluster(brokers=brokers, settings=settings, folder=folder, start_timeout_s=start_timeout_s)


class Cluster:
    """Brokers 1, 2, ... in processes of their own, which end with this process, however it ends."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        settings: Mapping[str, SettingValue] | None = None,
        folder: str | os.PathLike[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"A cluster has at least one broker, not {brokers}.")
        if brokers > 1:
            raise NotImplementedError(
                f"A cluster of {brokers} brokers cannot be started yet: brokers do not replicate to each"
                " other so far. Leave `brokers` at 1."
            )
        for name in settings or {}:
            if name in OWN_SETTINGS:
                raise ValueError(f"{name} cannot be chosen: the cluster sees to it.")
        self._settings = {name: _text(value) for name, value in {**_SETTINGS, **(settings or {})}.items()}
        self._count = brokers
        self._folder = None if folder is None else Path(folder).absolute()
        self._start_timeout_s = start_timeout_s
        self._brokers: dict[int, Broker] = {}
        self._temporary: TemporaryFolder | None = None
        self._spawner: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        # Tests may have threads.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._account_for_failures(error)
        finally:
            self.stop()

    async def __aenter__(self) -> AsyncCluster:
        from asyncio import shield, to_thread

        try:
            await to_thread(self.start)
        except BaseException:
            # When this was cancelled, the thread may still be starting brokers; stopping waits for it.
            await shield(to_thread(self.stop))
            raise
        return AsyncCluster(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from asyncio import shield, to_thread

        try:
            self._account_for_failures(error)
        finally:
            await shield(to_thread(self.stop))

    # ------------------------------------------------------------ what it is

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them: `host:port,...`."""
        self._check_started()
        return ",".join(broker.address for broker in self._brokers.values())

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the brokers, running or not."""
        self._check_started()
        return tuple(self._brokers)

    def pid(self, broker_id: int) -> int | None:
        """The id of a broker's process; None if it does not run."""
        return self._broker(broker_id).pid

    def log(self, broker_id: int) -> str:
        """All that a broker has logged."""
        return self._broker(broker_id).log_path.read_text(errors="replace")

    def log_end(self, broker_id: int) -> str:
        """The last lines of a broker's log."""
        return self._broker(broker_id).log_end()

    # ------------------------------------------------------------ what can be done to it

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> str:
        """Create a topic, and give its name; without one it gets a name that no other has."""
        from moldau.client import NewTopic, connect_sync

        name = name or f"topic-{token_hex(4)}"
        configs = {each: _text(value) for each, value in (settings or {}).items()}
        with connect_sync(self.bootstrap_servers) as client:
            client.admin.create_topics(NewTopic(name, partitions=partitions, configs=configs))
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        from moldau.client import connect_sync

        with connect_sync(self.bootstrap_servers) as client:
            client.admin.delete_topics(name)

    def kill(self, broker_id: int) -> None:
        """End a broker as kill -9 does."""
        with self._lock:
            self._broker(broker_id).kill()

    def shut_down(self, broker_id: int) -> None:
        """End a broker in an orderly way."""
        with self._lock:
            self._broker(broker_id).shut_down()

    def restart(self, broker_id: int) -> None:
        """Start a broker again, on its data and its port; one that runs is shut down before."""
        with self._lock:
            broker = self._broker(broker_id)
            broker.shut_down()
            broker.start(self._start_timeout_s)

    def pause(self, broker_id: int) -> None:
        """Let a broker hang: its connections stay, and nothing is answered."""
        with self._lock:
            self._broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on."""
        with self._lock:
            self._broker(broker_id).resume()

    def check(self) -> None:
        """Raise BrokerFailed if a broker has ended without being told to."""
        for broker in self._brokers.values():
            broker.check()

    def heal(self) -> None:
        """Let all brokers run again that were paused, were killed or have failed."""
        with self._lock:
            self._check_started()
            for broker in self._brokers.values():
                broker.resume()
                broker.start(self._start_timeout_s)

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Start all brokers and wait until they serve; BrokerFailed says why one does not."""
        with self._lock:
            self._check_owner()
            if self._spawner is not None:
                raise RuntimeError("The cluster was started already.")
            # What a test forgets to stop is cleaned up at the end.
            atexit.register(self.stop)
            self._spawner = ThreadPoolExecutor(1, thread_name_prefix="moldau-cluster")
            try:
                self._start_brokers(self._spawner)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End all brokers, and remove their data unless it is in a folder that was given; may be repeated."""
        if os.getpid() != self._owner:
            # A copy that os.fork made: the brokers belong to the original.
            return
        with self._lock:
            atexit.unregister(self.stop)
            for broker in self._brokers.values():
                # Data that stays is closed properly.
                if self._temporary is None:
                    broker.shut_down()
                broker.close()
            self._brokers = {}
            if self._spawner is not None:
                self._spawner.shutdown()
                self._spawner = None
            if self._temporary is not None:
                self._temporary.remove()
                self._temporary = None

    def _start_brokers(self, spawner: ThreadPoolExecutor) -> None:
        folder = self._folder
        if folder is None:
            self._temporary = TemporaryFolder()
            folder = self._temporary.path
        for broker_id in range(1, self._count + 1):
            home = folder / f"broker-{broker_id}"
            self._brokers[broker_id] = Broker(broker_id, home, self._settings, spawner=spawner)
        for broker in self._brokers.values():
            broker.start(self._start_timeout_s)

    # ------------------------------------------------------------ within

    def _broker(self, broker_id: int) -> Broker:
        self._check_started()
        if broker_id not in self._brokers:
            known = ", ".join(map(str, self._brokers))
            raise ValueError(f"There is no broker {broker_id}; there is {known}.")
        return self._brokers[broker_id]

    def _check_started(self) -> None:
        self._check_owner()
        if not self._brokers:
            raise RuntimeError("The cluster does not run: use it inside `with moldau.cluster() as c:`.")

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("The cluster belongs to the process that made it, and this is another.")

    def _account_for_failures(self, error: BaseException | None) -> None:
        """Say with an error which brokers had failed, because that may well be its cause, or as one."""
        try:
            self.check()
        except BrokerFailed as failure:
            if error is None:
                raise
            error.add_note(str(failure))


class AsyncCluster:
    """A cluster in `async with`: what takes a while is awaited."""

    def __init__(self, brokers: Cluster) -> None:
        self._cluster = brokers

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them: `host:port,...`."""
        return self._cluster.bootstrap_servers

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the brokers, running or not."""
        return self._cluster.broker_ids

    def pid(self, broker_id: int) -> int | None:
        """The id of a broker's process; None if it does not run."""
        return self._cluster.pid(broker_id)

    def log(self, broker_id: int) -> str:
        """All that a broker has logged."""
        return self._cluster.log(broker_id)

    def log_end(self, broker_id: int) -> str:
        """The last lines of a broker's log."""
        return self._cluster.log_end(broker_id)

    async def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> str:
        """Create a topic, and give its name; without one it gets a name that no other has."""
        from asyncio import to_thread

        return await to_thread(self._cluster.topic, name, partitions=partitions, settings=settings)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        await _in_thread(self._cluster.delete_topic, name)

    async def kill(self, broker_id: int) -> None:
        """End a broker as kill -9 does."""
        await _in_thread(self._cluster.kill, broker_id)

    async def shut_down(self, broker_id: int) -> None:
        """End a broker in an orderly way."""
        await _in_thread(self._cluster.shut_down, broker_id)

    async def restart(self, broker_id: int) -> None:
        """Start a broker again, on its data and its port; one that runs is shut down before."""
        await _in_thread(self._cluster.restart, broker_id)

    async def pause(self, broker_id: int) -> None:
        """Let a broker hang: its connections stay, and nothing is answered."""
        await _in_thread(self._cluster.pause, broker_id)

    async def resume(self, broker_id: int) -> None:
        """Let a paused broker go on."""
        await _in_thread(self._cluster.resume, broker_id)

    def check(self) -> None:
        """Raise BrokerFailed if a broker has ended without being told to."""
        self._cluster.check()

    async def heal(self) -> None:
        """Let all brokers run again that were paused, were killed or have failed."""
        await _in_thread(self._cluster.heal)


def _in_thread(work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> Awaitable[None]:
    # Loading asyncio would be felt by tests that do not use it.
    from asyncio import to_thread

    return to_thread(work, *args, **kwargs)


def _text(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
