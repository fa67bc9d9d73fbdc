"""The synchronous face: the same client with its loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from moldau.client.admin import Admin
from moldau.client.client import Client
from moldau.client.consumer import Assignment, Consumer, ConsumerRecord
from moldau.client.group_consumer import Callback, GroupConsumer
from moldau.client.partitioners import Partitioner
from moldau.client.producer import Delivered, Delivery, Producer
from moldau.client.settings import SettingValue
from moldau.model.ids import TopicPartition

# Told of partitions that come or go.
BlockingCallback = Callable[[tuple[TopicPartition, ...]], None]

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A thread that runs a loop; other threads hand it coroutines and wait for what comes of them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moldau client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """What `work` gives, run on the loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def blocking(self, method: Callable[P, Coroutine[object, object, T]]) -> Callable[P, T]:
        """An async method as one that blocks."""

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.run(method(*args, **kwargs))

        call.__doc__ = method.__doc__
        return call

    def on_loop(self, method: Callable[P, T]) -> Callable[P, T]:
        """A plain method as one that may be called from this thread."""

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return method(*args, **kwargs)

        call.__doc__ = method.__doc__
        return self.blocking(call)

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Run `work` on the loop without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingClient:
    """A client whose methods block; a context manager."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._thread = LoopThread()
        self._ready: Future[Client] = Future()
        # How to end what was started and is not done.
        self._under_way: dict[int, Callable[[], bool]] = {}
        # One task enters and leaves the client, because the client's tasks belong to the one that entered.
        self._life = self._thread.start(self._live(opened))
        try:
            self._client = self._ready.result()
        except BaseException:
            self._thread.stop()
            raise
        self.admin = BlockingAdmin(self._client.admin, self._thread)
        self.topic = self._thread.blocking(self._client.cluster.topic)

    async def _live(self, opened: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._closing = asyncio.Event()
        try:
            async with opened() as client:
                self._ready.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def producer(
        self, *, partitioner: Partitioner | str | None = None, **settings: SettingValue
    ) -> BlockingProducer:
        """A producer; settings given here go before the client's."""
        make = self._thread.on_loop(lambda: self._client.producer(partitioner=partitioner, **settings))
        return BlockingProducer(make(), self._thread)

    def consumer(self, assignment: Assignment = (), **settings: SettingValue) -> BlockingConsumer:
        """A consumer of topics, of `(topic, partition)` pairs, or of pairs with the offsets to start from."""
        make = self._thread.on_loop(lambda: self._client.consumer(assignment, **settings))
        return BlockingConsumer(make(), self._thread)

    def group_consumer(
        self,
        topics: Iterable[str] = (),
        *,
        group_id: str,
        pattern: str | None = None,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
        on_lost: BlockingCallback | None = None,
        **settings: SettingValue,
    ) -> BlockingGroupConsumer:
        """A member of a group; callbacks run in threads of their own, and may commit or seek."""
        make = self._thread.on_loop(
            lambda: self._client.consumer(
                topics,
                group_id=group_id,
                pattern=pattern,
                on_assigned=_in_a_thread(on_assigned),
                on_revoked=_in_a_thread(on_revoked),
                on_lost=_in_a_thread(on_lost),
                **settings,
            )
        )
        return BlockingGroupConsumer(make(), self._thread)

    def start(self, work: Callable[[Client], Coroutine[object, object, T]]) -> Future[T]:
        """Set something going with the async client, without waiting for it; it ends with the client."""
        future = self._thread.start(work(self._client))
        self._under_way[id(future)] = future.cancel
        future.add_done_callback(lambda done: self._under_way.pop(id(done)))
        return future

    def close(self) -> None:
        """Flush what producers hold, and end everything."""
        for cancel in list(self._under_way.values()):
            cancel()
        if not self._life.done():
            self._thread.on_loop(self._closing.set)()
        try:
            self._life.result()
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class BlockingProducer:
    """`Producer`, blocking: `send` waits only for room, `wait` for the broker too."""

    def __init__(self, producer: Producer, thread: LoopThread) -> None:
        self._producer = producer
        self._thread = thread
        self.send = thread.blocking(producer.send)
        self.send_packed = thread.blocking(producer.send_packed)
        self.topic = thread.blocking(producer.topic)
        self.flush = thread.blocking(producer.flush)
        self.close = thread.blocking(producer.close)
        self.abandon = thread.on_loop(producer.abandon)

    def wait(self, delivery: Delivery) -> Delivered:
        """Where a record was written, once it is."""

        async def settled() -> Delivered:
            return await delivery

        return self._thread.run(settled())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class BlockingConsumer:
    """`Consumer`, blocking."""

    def __init__(self, consumer: Consumer, thread: LoopThread) -> None:
        self._consumer = consumer
        self._thread = thread
        self.assign = thread.on_loop(consumer.assign)
        self.assignment = thread.blocking(consumer.assignment)
        self.seek = thread.on_loop(consumer.seek)
        self.seek_to_beginning = thread.blocking(consumer.seek_to_beginning)
        self.seek_to_end = thread.blocking(consumer.seek_to_end)
        self.seek_to_time = thread.blocking(consumer.seek_to_time)
        self.pause = thread.on_loop(consumer.pause)
        self.resume = thread.on_loop(consumer.resume)
        self.position = thread.blocking(consumer.position)
        self.high_watermark = thread.on_loop(consumer.high_watermark)
        self.poll = thread.blocking(consumer.poll)
        self.poll_arrow = thread.blocking(consumer.poll_arrow)
        self.poll_batches = thread.blocking(consumer.poll_batches)
        self.close = thread.blocking(consumer.close)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record, for ever."""
        while True:
            for (topic, partition), records in self.poll(timeout_ms=1_000).items():
                for offset, timestamp, key, value, headers, _ in records:
                    yield ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingGroupConsumer(BlockingConsumer):
    """`GroupConsumer`, blocking."""

    def __init__(self, consumer: GroupConsumer, thread: LoopThread) -> None:
        super().__init__(consumer, thread)
        self.group_id = consumer.group_id
        self.subscribe = thread.on_loop(consumer.subscribe)
        self.commit = thread.blocking(consumer.commit)
        self.commit_async = thread.on_loop(consumer.commit_async)
        self.committed = thread.blocking(consumer.committed)


def _in_a_thread(callback: BlockingCallback | None) -> Callback | None:
    """A callback that may block; on the loop itself it would wait for the loop, that is for ever."""
    if callback is None:
        return None
    return lambda places: asyncio.to_thread(callback, places)


class BlockingAdmin:
    """`Admin`, blocking."""

    def __init__(self, admin: Admin, thread: LoopThread) -> None:
        self.create_topics = thread.blocking(admin.create_topics)
        self.delete_topics = thread.blocking(admin.delete_topics)
        self.list_topics = thread.blocking(admin.list_topics)
        self.describe_topics = thread.blocking(admin.describe_topics)
        self.add_partitions = thread.blocking(admin.add_partitions)
        self.list_offsets = thread.blocking(admin.list_offsets)
        self.delete_records = thread.blocking(admin.delete_records)
        self.list_groups = thread.blocking(admin.list_groups)
        self.describe_groups = thread.blocking(admin.describe_groups)
        self.delete_groups = thread.blocking(admin.delete_groups)
        self.find_coordinator = thread.blocking(admin.find_coordinator)
        self.group_offsets = thread.blocking(admin.group_offsets)
        self.alter_group_offsets = thread.blocking(admin.alter_group_offsets)
        self.delete_group_offsets = thread.blocking(admin.delete_group_offsets)
        self.describe_configs = thread.blocking(admin.describe_configs)
        self.alter_configs = thread.blocking(admin.alter_configs)
        self.describe_cluster = thread.blocking(admin.describe_cluster)
        self.describe_log_dirs = thread.blocking(admin.describe_log_dirs)
        self.features = thread.blocking(admin.features)
        self.update_features = thread.blocking(admin.update_features)
        self.describe_quotas = thread.blocking(admin.describe_quotas)
        self.alter_quotas = thread.blocking(admin.alter_quotas)
