"""When a node is called alive, and when ready."""

from moldau.node.health import STUCK_MS, Health


def test_a_node_is_ready_from_when_it_serves_until_it_leaves() -> None:
    health = Health(lambda: None)
    assert health.why_not_ready(0) == "the node is starting"
    assert health.why_dead(0) is None
    health.is_serving = True
    assert health.why_not_ready(0) is None
    health.is_leaving = True
    assert health.why_not_ready(0) == "the node is shutting down"
    assert health.why_dead(0) is None


def test_an_obstacle_may_come_and_go() -> None:
    obstacles = ["fenced", None]
    health = Health(lambda: obstacles.pop(0))
    health.is_serving = True
    assert [health.why_not_ready(0), health.why_not_ready(0)] == ["fenced", None]


def test_a_loop_that_does_not_come_round_is_no_life() -> None:
    health = Health(lambda: None)
    health.is_serving = True
    health.beat_ms = 1_000
    assert health.why_dead(1_000 + STUCK_MS) is None
    assert health.why_dead(1_001 + STUCK_MS) == f"the event loop has been busy for {STUCK_MS + 1} ms"
    assert health.why_not_ready(1_001 + STUCK_MS) is not None


def test_a_node_of_which_a_part_has_failed_is_neither() -> None:
    health = Health(lambda: None)
    health.is_serving = True
    health.has_failed = True
    assert health.why_dead(0) == health.why_not_ready(0) == "a part of the node has failed"
