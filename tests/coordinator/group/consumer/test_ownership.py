"""Whatever the network does, no partition is read by two, and once it is well again, every one is read."""

import pytest
from coordinator.group.consumer.network import Network


def play(seed: int, step_count: int) -> Network:
    network = Network(seed)
    for _ in range(3):
        network.arrive()
    for _ in range(step_count):
        network.step()
    network.heal()
    network.check_settled()
    return network


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_is_read_by_two(seed: int) -> None:
    play(seed, 250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_no_partition_is_read_by_two_in_a_long_run(seed: int) -> None:
    play(seed, 3000)
