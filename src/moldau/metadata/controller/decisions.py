"""What every decision of the controller is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Never, TypeVar

from moldau.metadata.image import Broker, Image
from moldau.model.decision import Decision
from moldau.model.draws import Draws
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import BrokerEpoch, NodeId, Offset
from moldau.wire.message import MetadataRecord

T = TypeVar("T")

ControllerDecision = Decision[T, MetadataRecord, Never]

# One request is one batch, which is applied as a whole or not at all. So many records of partitions with
# three replicas take about 1 MiB, and 8 MiB is the largest batch of the metadata log. The limit is Kafka's.
RECORDS_PER_REQUEST_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a decision depends on besides the cluster and the request."""

    # Of a clock that never jumps.
    now_ms: int
    # Where the first record of the decision will stand in the log.
    next_offset: Offset
    # Fresh random bytes, at least `draws.SEED_BYTES`; ids and placements are drawn from them.
    seed: bytes

    def draws(self) -> Draws:
        """The draws of this one decision."""
        return Draws(self.seed)


def decided(
    reply: T, records: Iterable[MetadataRecord] = (), *, is_trial: bool = False
) -> ControllerDecision[T]:
    """A decision on a user's request; a trial (`validate_only`) has the same reply and changes nothing."""
    kept = tuple(records)
    if len(kept) > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request needs {len(kept)} metadata records, and {RECORDS_PER_REQUEST_MAX} are allowed.",
        )
    return Decision(reply, () if is_trial else kept)


def check_broker_epoch(image: Image, broker_id: int, epoch: int) -> Broker:
    """The broker, if it is registered with this epoch; STALE_BROKER_EPOCH otherwise."""
    broker = image.brokers.get(NodeId(broker_id))
    if broker is None:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is not registered, with epoch {epoch} or any other.",
        )
    if broker.epoch != BrokerEpoch(epoch):
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has epoch {broker.epoch} now, not {epoch}."
        )
    return broker


def repeated(names: Iterable[T]) -> list[T]:
    """What is named more than once, in the order of its second mention."""
    seen: dict[T, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]
