"""A producer that sends inputs whatever happens to the broker, and knows which were acknowledged."""

from __future__ import annotations

import queue
import threading
from typing import Final

from spark.chaos.checks import Sent
from spark.chaos.inputs import key_of, value_of
from spark.chaos.setup import INPUT

from moldau.client import ClientError, connect_sync
from moldau.client.blocking import BlockingClient, BlockingProducer
from moldau.client.producer import Delivery

# Longer than any broker is away.
_DELIVERY_TIMEOUT_MS: Final = 600_000
_STEP_S: Final = 0.05


class Load:
    """Sends so many inputs a second, from the moment it is made."""

    def __init__(self, bootstrap_servers: str, *, per_second: int) -> None:
        self._step = max(int(per_second * _STEP_S), 1)
        self._client: BlockingClient = connect_sync(bootstrap_servers)
        self._producer: BlockingProducer = self._client.producer(delivery_timeout_ms=_DELIVERY_TIMEOUT_MS)
        self._is_over = threading.Event()
        self._count = 0
        self._acknowledged: set[int] = set()
        self._deliveries: queue.SimpleQueue[tuple[int, Delivery] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self.refused: list[str] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"load: {work.__name__}", daemon=True)
            for work in (self._send, self._settle)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self) -> int:
        """How many inputs are acknowledged so far."""
        return len(self._acknowledged)

    def check(self) -> None:
        """Raise what has ended the producer, if it was not we."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> Sent:
        """Send no more, wait for what was sent, and tell."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.check()
        self._producer.close()
        self._client.close()
        return Sent(self._count, frozenset(self._acknowledged))

    def abandon(self) -> None:
        """End, whatever was sent; nothing if it is finished."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        self._producer.__exit__(KeyboardInterrupt)
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _send(self) -> None:
        try:
            while not self._is_over.wait(_STEP_S):
                for _ in range(self._step):
                    number = self._count
                    # Counted first: what fails on its way may have arrived all the same.
                    self._count += 1
                    sent = self._producer.send(INPUT, value_of(number).encode(), key=key_of(number).encode())
                    self._deliveries.put((number, sent))
        finally:
            self._deliveries.put(None)

    def _settle(self) -> None:
        while (each := self._deliveries.get()) is not None:
            number, delivery = each
            try:
                self._producer.wait(delivery)
            except ClientError as error:
                self.refused.append(f"{number}: {error}")
            else:
                self._acknowledged.add(number)

    def _guarded(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # told to whoever asks
            if not self._is_over.is_set():
                self._failure = error
