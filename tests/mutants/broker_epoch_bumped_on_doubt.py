"""A broker that finds a repeated batch out of order, and a client that then begins a new epoch with it.

Redpanda #3039: the broker kept only the last sequence number of a producer, so that a batch whose answer was
lost was refused when it came again, and the clients of that time took the refusal for one they could mend.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.client.accumulator import Accumulator, Batch
from moldau.client.errors import ClientError
from moldau.log.producers import ProducedBatch, Producers
from moldau.model.errors import ErrorCode
from moldau.wire.records.header import BatchHeader

failed = Accumulator.failed


def knows_no_duplicate(self: Producers, header: BatchHeader) -> ProducedBatch | None:
    return None


def failed_and_mended(
    self: Accumulator, batch: Batch, error: ClientError, *, now_ms: int, retry_at_ms: int
) -> None:
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        batch.doubt = None
        self._lines[batch.partition].has_gap = True
    failed(self, batch, error, now_ms=now_ms, retry_at_ms=retry_at_ms)


@contextmanager
def applied() -> Iterator[None]:
    with (
        patch.object(Producers, "duplicate_of", knows_no_duplicate),
        patch.object(Accumulator, "failed", failed_and_mended),
    ):
        yield
