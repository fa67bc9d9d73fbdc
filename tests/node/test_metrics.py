"""What is counted, and how it reads in Prometheus' text format."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode
from moldau.node.metrics import SECONDS_BUCKETS, Histogram, LoopLag, Metrics, RequestMetrics


def test_all_kinds_are_rendered_with_their_help_and_type() -> None:
    metrics = Metrics()
    metrics.counter("moldau_things_total", "Things.", {"colour": "red"}).add(3)
    metrics.counter("moldau_things_total", "Things.", {"colour": "blue"}).add()
    metrics.gauge("moldau_level", "A level.").set(-1.5)
    metrics.gauge_read("moldau_connections", "Open connections.", lambda: 7)
    histogram = metrics.histogram("moldau_wait_seconds", "Waiting.", {"api": "Fetch"}, bounds=(0.25, 1))
    for seconds in (0.125, 0.25, 0.5, 4):
        histogram.observe(seconds)
    assert metrics.render() == (
        "# HELP moldau_things_total Things.\n"
        "# TYPE moldau_things_total counter\n"
        'moldau_things_total{colour="red"} 3\n'
        'moldau_things_total{colour="blue"} 1\n'
        "# HELP moldau_level A level.\n"
        "# TYPE moldau_level gauge\n"
        "moldau_level -1.5\n"
        "# HELP moldau_connections Open connections.\n"
        "# TYPE moldau_connections gauge\n"
        "moldau_connections 7\n"
        "# HELP moldau_wait_seconds Waiting.\n"
        "# TYPE moldau_wait_seconds histogram\n"
        'moldau_wait_seconds_bucket{api="Fetch",le="0.25"} 2\n'
        'moldau_wait_seconds_bucket{api="Fetch",le="1"} 3\n'
        'moldau_wait_seconds_bucket{api="Fetch",le="+Inf"} 4\n'
        'moldau_wait_seconds_sum{api="Fetch"} 4.875\n'
        'moldau_wait_seconds_count{api="Fetch"} 4\n'
    )


def test_a_histogram_without_labels_still_says_which_bucket_it_means() -> None:
    metrics = Metrics()
    metrics.histogram("moldau_wait_seconds", "Waiting.", bounds=(1,)).observe(2)
    assert metrics.snapshot() == {
        'moldau_wait_seconds_bucket{le="1"}': 0,
        'moldau_wait_seconds_bucket{le="+Inf"}': 1,
        "moldau_wait_seconds_sum": 2,
        "moldau_wait_seconds_count": 1,
    }


def test_what_would_break_a_line_is_escaped() -> None:
    metrics = Metrics()
    metrics.counter("moldau_things_total", "Back\\slash,\nnew line.", {"name": 'a\\b"c\nd'})
    lines = metrics.render().split("\n")
    assert lines[0] == r"# HELP moldau_things_total Back\\slash,\nnew line."
    assert lines[2] == r'moldau_things_total{name="a\\b\"c\nd"} 0'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
        (0.1, "0.1"),
        (2**53, f"{2**53}"),
    ],
)
def test_numbers_are_spelt_as_prometheus_spells_them(value: float, text: str) -> None:
    metrics = Metrics()
    metrics.gauge("moldau_level", "A level.").set(value)
    assert metrics.render().endswith(f"\nmoldau_level {text}\n")


def test_whoever_asks_for_the_same_name_and_labels_gets_the_same_handle() -> None:
    metrics = Metrics()
    first = metrics.counter("moldau_things_total", "Things.", {"colour": "red"})
    assert metrics.counter("moldau_things_total", "Things.", {"colour": "red"}) is first
    assert metrics.counter("moldau_things_total", "Things.", {"colour": "blue"}) is not first


def test_a_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("moldau_things_total", "Things.")
    with pytest.raises(AssertionError):
        metrics.gauge("moldau_things_total", "Things.")
    with pytest.raises(AssertionError):
        metrics.gauge_read("moldau_things_total", "Things.", lambda: 1)


def test_gauges_of_partitions_come_and_go_with_the_partitions() -> None:
    sizes = {("orders", 0): 100}
    metrics = Metrics()
    metrics.gauges_read(
        "moldau_log_bytes",
        "Bytes of a partition.",
        lambda: [({"topic": name, "partition": str(index)}, size) for (name, index), size in sizes.items()],
    )
    assert metrics.snapshot() == {'moldau_log_bytes{topic="orders",partition="0"}': 100}
    sizes.clear()
    assert metrics.snapshot() == {}


@given(st.lists(st.floats(0, 100)))
def test_every_value_is_in_its_own_bucket_and_all_wider_ones(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    samples = dict(histogram.samples("x", ""))
    for bound in SECONDS_BUCKETS:
        assert samples[f'x_bucket{{le="{bound!r}"}}'] == sum(value <= bound for value in values)
    assert samples['x_bucket{le="+Inf"}'] == samples["x_count"] == histogram.count == len(values)
    assert samples["x_sum"] == pytest.approx(sum(values))


def test_the_requests_of_an_api_are_counted_and_its_errors_by_name() -> None:
    metrics = Metrics()
    produce = RequestMetrics(metrics, "Produce")
    fetch = RequestMetrics(metrics, "Fetch")
    produce.answered(seconds=0.001, request_bytes=1000, response_bytes=60)
    produce.answered(seconds=0.002, request_bytes=500, response_bytes=60)
    fetch.answered(seconds=30, request_bytes=90, response_bytes=4000)
    produce.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    produce.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    snapshot = metrics.snapshot()
    assert snapshot['moldau_requests_total{api="Produce"}'] == 2
    assert snapshot['moldau_requests_total{api="Fetch"}'] == 1
    assert snapshot['moldau_request_bytes_total{api="Produce"}'] == 1500
    assert snapshot['moldau_response_bytes_total{api="Fetch"}'] == 4000
    assert snapshot['moldau_request_seconds_sum{api="Produce"}'] == 0.003
    assert snapshot['moldau_request_seconds_bucket{api="Fetch",le="+Inf"}'] == 1
    assert snapshot['moldau_errors_total{api="Produce",error="NOT_LEADER_OR_FOLLOWER"}'] == 2


def test_the_lag_of_the_loop_is_how_late_a_sleeper_woke_and_never_negative() -> None:
    metrics = Metrics()
    lag = LoopLag(metrics)
    lag.woke(expected_seconds=10, actual_seconds=10.5)
    lag.woke(expected_seconds=11, actual_seconds=10.999)
    assert metrics.snapshot()["moldau_loop_lag_seconds_sum"] == 0.5
    assert metrics.snapshot()["moldau_loop_lag_seconds_count"] == 2


LABEL = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"[a-z_]+(?:\{{{LABEL}(?:,{LABEL})*\}})? (?:[0-9.e+-]+|[+-]Inf|NaN)")


@given(st.text(), st.text(), st.floats())
def test_every_line_can_be_read_whatever_the_labels_say(topic: str, api: str, value: float) -> None:
    metrics = Metrics()
    metrics.histogram("moldau_wait_seconds", "Waiting.", {"topic": topic, "api": api}).observe(value)
    *lines, end = metrics.render().split("\n")
    assert end == ""
    assert all(SAMPLE.fullmatch(line) for line in lines[2:])
