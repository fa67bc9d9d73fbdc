"""What Spark says after each micro-batch, added up, and as metrics."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.spark.pipelines.checkpoints import Logged
from moldau.spark.pipelines.progress import Progress, metrics_text, query_json


def place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def report(**changes: object) -> dict[str, Any]:
    """As Spark tells it of a batch that read a topic, counted, and wrote."""
    return {
        "id": "6f1c",
        "runId": "a2",
        "name": "counts",
        "batchId": 4,
        "numInputRows": 100,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 200.04,
        "durationMs": {"addBatch": 400, "latestOffset": 20, "triggerExecution": 500},
        "eventTime": {"watermark": "2030-01-01T00:00:00.000Z"},
        "stateOperators": [
            {"numRowsTotal": 7, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
            {"numRowsTotal": 3, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0},
        ],
        "sources": [
            {
                "description": "moldau",
                "endOffset": {"clicks": {"0": 60, "1": 40}, "@ids": {"clicks": "x"}},
                "latestOffset": {"clicks": {"0": 70, "1": 40}},
            }
        ],
        "sink": {"numOutputRows": -1},
        **changes,
    }


def test_a_batch_is_told_with_all_that_is_asked_for() -> None:
    progress = Progress()
    query = progress.batch(report(), now_ms=5)
    assert (query.name, query.batch_id, query.batches) == ("counts", 4, 1)
    assert (query.rows_in, query.rows_in_per_s, query.rows_done_per_s) == (100, 50.0, 200.0)
    assert (query.batch_ms, query.state_rows, query.state_bytes, query.rows_late) == (500, 10, 1500, 2)
    assert (query.lag, query.watermark, query.rows_out) == (10, "2030-01-01T00:00:00.000Z", None)


def test_rows_add_up_and_rates_are_those_of_the_last_batch() -> None:
    progress = Progress()
    progress.batch(report(sink={"numOutputRows": 3}), now_ms=1)
    query = progress.batch(report(batchId=5, numInputRows=11, sink={"numOutputRows": 4}), now_ms=2)
    assert (query.batches, query.rows_in, query.rows_out, query.rows_late) == (2, 111, 7, 4)


def test_a_report_without_a_batch_counts_for_nothing() -> None:
    progress = Progress()
    progress.batch(report(), now_ms=1)
    idle = report(batchId=5, numInputRows=0, durationMs={"latestOffset": 3, "triggerExecution": 4})
    query = progress.batch({**idle, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}, now_ms=2)
    assert (query.batch_id, query.batches, query.batch_ms, query.is_idle) == (4, 1, 500, True)
    assert (query.rows_in_per_s, query.rows_late) == (0.0, 2)


def test_what_spark_leaves_out_or_cannot_tell_is_unknown() -> None:
    progress = Progress()
    query = progress.batch(
        {"id": "6f1c", "durationMs": {"addBatch": 1}, "inputRowsPerSecond": float("nan"), "sources": [{}]},
        now_ms=1,
    )
    assert (query.name, query.batch_id, query.lag, query.state_rows) == ("6f1c", None, None, None)
    assert (query.rows_in, query.rows_in_per_s) == (0, 0.0)


def test_other_sources_have_no_lag() -> None:
    progress = Progress()
    for offset in (7, None, {"logOffset": 3}, "{}"):
        query = progress.batch(report(sources=[{"endOffset": offset, "latestOffset": offset}]), now_ms=1)
        assert query.lag is None


def test_the_lag_is_that_of_now_not_that_of_the_last_batch() -> None:
    progress = Progress()
    progress.batch(report(), now_ms=1)
    assert progress.places() == [place("clicks", 0), place("clicks", 1)]
    progress.log_ends({place("clicks", 0): 100, place("clicks", 1): 45, place("other", 0): 9})
    assert progress.queries["counts"].lag == 45
    query = progress.batch(
        report(sources=[{"endOffset": {"clicks": {"0": 100, "1": 45}}}], batchId=5), now_ms=2
    )
    assert query.lag == 0


def test_a_query_that_goes_on_has_a_lag_before_its_first_batch_is_done() -> None:
    progress = Progress()
    progress.started("counts")
    assert progress.unknown() == {"counts"}
    done = {"clicks": {"0": 60}, "@query": "x"}
    progress.resumed("counts", Logged(done=[None, done], planned=[{"logOffset": 3}, {"clicks": {"0": 90}}]))
    query = progress.queries["counts"]
    assert (query.lag, query.batches, query.batch_id) == (30, 0, None)
    assert progress.unknown() == set()
    progress.log_ends({place("clicks", 0): 100})
    assert query.lag == 40
    assert 'lag_records{pipeline="shop",query="counts"} 40' in metrics_text("shop", [query], is_up=True)


def test_a_query_that_has_just_begun_knows_where_from_its_first_batch() -> None:
    progress = Progress()
    progress.started("counts")
    progress.resumed("counts", Logged())
    assert progress.unknown() == {"counts"}
    first = {"clicks": {"0": 90}, "@beginning": {"clicks": {"0": 20}}}
    progress.resumed("counts", Logged(planned=[first]))
    assert progress.queries["counts"].lag == 70


def test_nothing_is_said_of_the_lag_before_somebody_says_where_logs_end() -> None:
    progress = Progress()
    progress.resumed("counts", Logged(done=[{"clicks": {"0": 60}}]))
    progress.log_ends({})
    assert query_json(progress.queries["counts"])["lag"] is None
    progress.log_ends({place("clicks", 0): 61})
    assert query_json(progress.queries["counts"])["lag"] == 1
    # A batch that is done knows better than the checkpoint.
    query = progress.batch(report(), now_ms=1)
    progress.resumed("counts", Logged(done=[{"clicks": {"0": 1}}]))
    assert query.positions[place("clicks", 0)] == 60


def test_a_query_of_a_graph_goes_by_the_name_of_its_table() -> None:
    progress = Progress()
    assert progress.batch(report(name="spark_catalog.default.clicks"), now_ms=1).name == "clicks"


def test_a_query_that_ends_stands_still_and_may_begin_again() -> None:
    progress = Progress()
    progress.batch(report(), now_ms=1)
    progress.ended("counts", "boom")
    query = progress.queries["counts"]
    assert (query.has_ended, query.error, query.rows_in_per_s, query.rows_in) == (True, "boom", 0.0, 100)
    progress.idle("counts", 9)
    assert not query.has_ended
    assert query.is_idle


def test_the_json_has_names_that_stay() -> None:
    progress = Progress()
    document = query_json(progress.batch(report(), now_ms=5))
    assert document["offsets"] == {"clicks": {"0": 60, "1": 40}}
    assert document["durations_ms"] == {"addBatch": 400, "latestOffset": 20, "triggerExecution": 500}
    assert {"name", "batch_id", "rows_in", "rows_in_per_s", "rows_done_per_s", "lag", "batch_ms"} < {
        *document
    }
    assert not {"positions", "ends"} & {*document}
    assert progress.to_json() == {"queries": [document]}


def test_prometheus_reads_the_metrics() -> None:
    progress = Progress()
    progress.batch(report(name='a "quoted" name'), now_ms=1500)
    progress.started("idle")
    text = metrics_text("shop", progress.queries.values(), is_up=True)
    samples = {
        (sample.name, sample.labels.get("query")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    name = 'a "quoted" name'
    assert samples[("moldau_pipeline_up", None)] == 1
    assert samples[("moldau_pipeline_rows_in_total", name)] == 100
    assert samples[("moldau_pipeline_lag_records", name)] == 10
    assert samples[("moldau_pipeline_batch_duration_seconds", name)] == 0.5
    assert samples[("moldau_pipeline_last_progress_timestamp_seconds", name)] == 1.5
    # What is not known of a query is no sample, rather than a zero.
    assert ("moldau_pipeline_lag_records", "idle") not in samples
    assert samples[("moldau_pipeline_rows_in_total", "idle")] == 0
