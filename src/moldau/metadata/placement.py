"""Which brokers get the replicas of new partitions: striped over racks and brokers, the fenced ones last.

The rules are those of Kafka's StripedReplicaPlacer. Racks take turns, and each partition starts one rack
further; within a rack brokers take turns, and each partition starts one broker further. No partition starts
on a fenced broker, because its first replica is to lead it.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.metadata.image import Broker, NodeIds
from moldau.model.draws import Draws
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId


def place(
    brokers: Iterable[Broker], *, partition_count: int, replication_factor: int, draws: Draws
) -> list[NodeIds]:
    """The replicas of each partition, its leader first; INVALID_REPLICATION_FACTOR if brokers are too few."""
    stripes = _Stripes(brokers, draws)
    if replication_factor <= 0:
        raise _invalid(f"the replication factor {replication_factor} is not positive")
    if stripes.usable_count == 0:
        raise _invalid("all brokers are fenced")
    if replication_factor > stripes.broker_count:
        raise _invalid(
            f"the replication factor {replication_factor} is larger than the number of brokers, "
            f"{stripes.broker_count}"
        )
    return [stripes.next(replication_factor) for _ in range(partition_count)]


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"Replicas cannot be placed: {why}.")


class _Ring:
    """Brokers that take turns; a new round starts one broker further."""

    def __init__(self, brokers: list[NodeId], draws: Draws) -> None:
        self._brokers = sorted(brokers)
        self._start = draws.below(len(brokers)) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, round_number: int) -> NodeId | None:
        """The next broker of this round, or None when all have had their turn."""
        if round_number != self._round:
            self._round = round_number
            self._taken = 0
            self._start += 1
        if self._taken == len(self._brokers):
            return None
        broker = self._brokers[(self._start + self._taken) % len(self._brokers)]
        self._taken += 1
        return broker

    def shuffle(self, draws: Draws) -> None:
        self._brokers = draws.shuffled(self._brokers)


class _Rack:
    def __init__(self, brokers: list[Broker], draws: Draws) -> None:
        self.usable = _Ring([broker.id for broker in brokers if not broker.is_fenced], draws)
        self.fenced = _Ring([broker.id for broker in brokers if broker.is_fenced], draws)

    def next(self, round_number: int) -> NodeId | None:
        broker = self.usable.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _Stripes:
    def __init__(self, brokers: Iterable[Broker], draws: Draws) -> None:
        by_rack: dict[str, list[Broker]] = {}
        for broker in brokers:
            # Brokers that name no rack stand in one of their own, before all others.
            by_rack.setdefault("" if broker.rack is None else f"={broker.rack}", []).append(broker)
        self._racks = [_Rack(by_rack[rack], draws) for rack in sorted(by_rack)]
        self._draws = draws
        self._rack_first = draws.below(len(self._racks)) if self._racks else 0
        self._round = 0
        self.broker_count = sum(map(len, by_rack.values()))
        self.usable_count = sum(not broker.is_fenced for group in by_rack.values() for broker in group)

    def next(self, replication_factor: int) -> NodeIds:
        """The replicas of the next partition."""
        # When every broker has led once, the stripes would repeat; a shuffle brings others together.
        if self._round == self.usable_count > 1:
            self._racks = self._draws.shuffled(self._racks)
            for rack in self._racks:
                rack.usable.shuffle(self._draws)
                rack.fenced.shuffle(self._draws)
            self._round = 0
        count = len(self._racks)
        order = [(self._rack_first + step) % count for step in range(count)]
        leader_rack, leader = next(
            (index, broker)
            for index in order
            if (broker := self._racks[index].usable.next(self._round)) is not None
        )
        replicas = [leader]
        # The first lap leaves out the rack that gave the leader: it has had its turn.
        lap = [index for index in order if index != leader_rack]
        while True:
            for index in lap:
                if len(replicas) == replication_factor:
                    self._round += 1
                    self._rack_first = (self._rack_first + 1) % count
                    return tuple(replicas)
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            lap = order
