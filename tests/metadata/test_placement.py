from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.image import Broker, NodeIds
from moldau.metadata.placement import place
from moldau.model.draws import Draws
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, BrokerEpoch, NodeId

SEED = bytes(16)


def broker(node_id: int, rack: str | None = None, *, is_fenced: bool = False) -> Broker:
    return Broker(
        id=NodeId(node_id),
        epoch=BrokerEpoch(node_id),
        incarnation_id=ZERO_UUID,
        endpoints=(),
        features=(),
        rack=rack,
        is_fenced=is_fenced,
        in_controlled_shutdown=False,
        directories=(),
    )


def placed(brokers: list[Broker], partitions: int, replicas: int, seed: bytes = SEED) -> list[NodeIds]:
    return place(brokers, partition_count=partitions, replication_factor=replicas, draws=Draws(seed))


def test_without_racks_leaders_take_turns() -> None:
    leaders = [replicas[0] for replicas in placed([broker(each) for each in range(4)], 4, 2)]
    assert sorted(leaders) == [0, 1, 2, 3]
    assert all(after == (before + 1) % 4 for before, after in pairwise(leaders))


def test_every_partition_has_a_replica_in_each_rack() -> None:
    racks = {node_id: "abc"[node_id % 3] for node_id in range(9)}
    brokers = [broker(node_id, rack) for node_id, rack in racks.items()]
    partitions = placed(brokers, 90, 3)
    assert all(sorted(racks[each] for each in replicas) == ["a", "b", "c"] for replicas in partitions)
    assert set(Counter(each for replicas in partitions for each in replicas).values()) == {30}
    assert Counter(racks[replicas[0]] for replicas in partitions) == {"a": 30, "b": 30, "c": 30}


def test_each_partition_starts_one_rack_further() -> None:
    racks = {node_id: "abc"[node_id % 3] for node_id in range(3)}
    partitions = placed([broker(node_id, rack) for node_id, rack in racks.items()], 3, 3)
    starts = [racks[replicas[0]] for replicas in partitions]
    assert sorted(starts) == ["a", "b", "c"]
    assert "".join(starts) in "abcabc"


def test_fenced_brokers_come_last_and_never_first() -> None:
    brokers = [broker(0), broker(1), broker(2, is_fenced=True)]
    assert all(set(replicas) == {0, 1} for replicas in placed(brokers, 10, 2))
    for replicas in placed(brokers, 10, 3):
        assert replicas[0] != 2
        assert replicas[2] == 2


def test_a_rack_of_fenced_brokers_still_gets_replicas_but_no_leader() -> None:
    brokers = [broker(0, "a"), broker(1, "a"), broker(2, "b", is_fenced=True)]
    for replicas in placed(brokers, 10, 2):
        assert replicas[0] in (0, 1)
        assert replicas[1] == 2


def test_after_a_round_other_brokers_stand_together() -> None:
    pairs = {frozenset(replicas) for replicas in placed([broker(each) for each in range(6)], 600, 2)}
    assert len(pairs) == 15


@pytest.mark.parametrize(
    ("brokers", "replicas", "complaint"),
    [
        ([broker(1)], 0, "0 is not positive"),
        ([broker(1)], -2, "-2 is not positive"),
        ([], 1, "all brokers are fenced"),
        ([broker(1, is_fenced=True)], 1, "all brokers are fenced"),
        ([broker(1), broker(2, is_fenced=True)], 3, "3 is larger than the number of brokers, 2"),
    ],
)
def test_impossible_factors_are_refused(brokers: list[Broker], replicas: int, complaint: str) -> None:
    with pytest.raises(KafkaError, match=complaint) as refused:
        placed(brokers, 1, replicas)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 12),
    st.binary(min_size=16, max_size=16),
)
def test_no_broker_twice_and_no_fenced_leader(
    drawn: list[tuple[str | None, bool]], factor: int, seed: bytes
) -> None:
    brokers = [broker(index, rack, is_fenced=fenced) for index, (rack, fenced) in enumerate(drawn)]
    usable = {each.id for each in brokers if not each.is_fenced}
    if not usable or factor > len(brokers):
        return
    for replicas in placed(brokers, 20, factor, seed):
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in usable
