"""How the queries of a pipeline get on: what Spark says after each micro-batch, added up; and its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from moldau.model.ids import TopicPartition
from moldau.spark.pipelines.checkpoints import Logged
from moldau.spark.plan.offsets import BadOffsets, Position


@dataclass(slots=True)
class QueryProgress:
    """One query."""

    name: str
    batch_id: int | None = None
    batches: int = 0
    # All since this run began, and those of the last batch by the second.
    rows_in: int = 0
    rows_in_per_s: float = 0.0
    rows_done_per_s: float = 0.0
    # Sinks of files and topics do not tell Spark how many rows they wrote.
    rows_out: int | None = None
    batch_ms: int = 0
    # What the last batch spent its time on, as Spark names it.
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    state_rows: int | None = None
    state_bytes: int | None = None
    rows_late: int = 0
    watermark: str | None = None
    # Offsets in the topics that it reads which no batch has dealt with; None if it reads none.
    lag: int | None = None
    at_ms: int = 0
    is_idle: bool = False
    has_ended: bool = False
    error: str | None = None
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


class Progress:
    """All queries of one run."""

    def __init__(self) -> None:
        self.queries: dict[str, QueryProgress] = {}

    def started(self, name: str) -> QueryProgress:
        """A query begins, or begins again."""
        query = self.queries.setdefault(name, QueryProgress(name))
        query.has_ended = False
        return query

    def batch(self, document: Mapping[str, object], now_ms: int) -> QueryProgress:
        """A micro-batch is done, of which Spark says this."""
        query = self.started(query_name(document.get("name") or document.get("id")))
        # Without new data Spark reports again, with the number of the batch that is to come.
        durations = _mapping(document.get("durationMs"))
        is_batch = "addBatch" in durations
        query.at_ms = now_ms
        query.is_idle = not is_batch
        query.rows_in_per_s = _rate(document.get("inputRowsPerSecond"))
        query.rows_done_per_s = _rate(document.get("processedRowsPerSecond"))
        if is_batch:
            query.batch_id = _whole(document.get("batchId"))
            query.batches += 1
            query.rows_in += _whole(document.get("numInputRows")) or 0
            query.batch_ms = _whole(durations.get("triggerExecution")) or 0
            query.durations_ms = {name: _whole(value) or 0 for name, value in durations.items()}
            written = _whole(_mapping(document.get("sink")).get("numOutputRows"))
            if written is not None and written >= 0:
                query.rows_out = (query.rows_out or 0) + written
        operators = [_mapping(each) for each in _list(document.get("stateOperators"))]
        if operators:
            query.state_rows = sum(_whole(each.get("numRowsTotal")) or 0 for each in operators)
            query.state_bytes = sum(_whole(each.get("memoryUsedBytes")) or 0 for each in operators)
            if is_batch:
                query.rows_late += sum(
                    _whole(each.get("numRowsDroppedByWatermark")) or 0 for each in operators
                )
        watermark = _mapping(document.get("eventTime")).get("watermark")
        query.watermark = str(watermark) if watermark else query.watermark
        for source in _list(document.get("sources")):
            _take_positions(query, _mapping(source))
        _find_lag(query)
        return query

    def unknown(self) -> set[str]:
        """Queries that run, and of which it is not known how far they are."""
        return {
            query.name
            for query in self.queries.values()
            if not (query.has_ended or query.batches or query.positions)
        }

    def resumed(self, name: str, found: Logged) -> None:
        """A query goes on where its checkpoint says; its first micro-batch may take long."""
        query = self.started(name)
        if query.positions:
            return
        for document in found.done:
            query.positions.update(_offsets(document))
        for document in found.planned:
            for place, offset in _offsets(document, is_beginning=True).items():
                query.positions.setdefault(place, offset)
            query.ends.update(_offsets(document))
        _find_lag(query)

    def idle(self, name: str, now_ms: int) -> None:
        """A query waits for data."""
        query = self.started(name)
        query.is_idle = True
        query.rows_in_per_s = query.rows_done_per_s = 0.0
        query.at_ms = now_ms

    def ended(self, name: str, error: str | None) -> None:
        """A query has ended."""
        query = self.started(name)
        query.has_ended = True
        query.is_idle = True
        query.error = error
        query.rows_in_per_s = query.rows_done_per_s = 0.0

    def places(self) -> list[TopicPartition]:
        """Whose ends tell the lag."""
        return sorted({place for query in self.queries.values() for place in query.positions})

    def log_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Where the logs end now, which is more than the last batch could know."""
        for query in self.queries.values():
            known = {place: end for place, end in ends.items() if place in query.positions}
            query.ends.update(known)
            _find_lag(query)

    def to_json(self) -> dict[str, object]:
        """As it stands in progress.json."""
        return {"queries": [query_json(query) for query in self.queries.values()]}


def query_name(given: object) -> str:
    """The name of a query, without the catalog that all tables of a graph are in."""
    return str(given).removeprefix("spark_catalog.default.")


def query_json(query: QueryProgress) -> dict[str, object]:
    """One query, with names that stay."""
    document = asdict(query)
    for name in ("positions", "ends", "durations_ms"):
        del document[name]
    document["durations_ms"] = dict(query.durations_ms)
    document["offsets"] = _by_topic(query.positions)
    return document


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for place, offset in sorted(positions.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return found


def _take_positions(query: QueryProgress, source: Mapping[str, object]) -> None:
    """Note how far a source has come, if it reads topics."""
    positions = _offsets(source.get("endOffset"))
    query.positions.update(positions)
    if positions:
        latest = _offsets(source.get("latestOffset"))
        for place, offset in latest.items():
            query.ends[place] = max(offset, query.ends.get(place, 0))


def _offsets(document: object, *, is_beginning: bool = False) -> Mapping[TopicPartition, int]:
    """The offsets of topics in what a source reports; none if it is a source of something else."""
    if not isinstance(document, dict):
        return {}
    try:
        position = Position.from_json(document)
    except (BadOffsets, ValueError, TypeError):
        return {}
    return (position.beginning or {}) if is_beginning else position.offsets


def _find_lag(query: QueryProgress) -> None:
    # Before the first micro-batch nobody may have said where logs end.
    if query.positions and (query.batches or query.ends):
        query.lag = sum(
            max(0, query.ends.get(place, position) - position) for place, position in query.positions.items()
        )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _rate(value: object) -> float:
    return round(float(value), 1) if isinstance(value, int | float) and math.isfinite(value) else 0.0


# ---------------------------------------------------------------- for Prometheus


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: a metric of a query, and where its value is."""

    name: str
    kind: str
    doc: str
    attribute: str
    scale: float = 1.0


METRICS: Final = (
    Metric("rows_in_total", "counter", "Rows read since the run began.", "rows_in"),
    Metric("rows_out_total", "counter", "Rows written since then, if the sink counts them.", "rows_out"),
    Metric("rows_late_total", "counter", "Rows dropped because they were behind the watermark.", "rows_late"),
    Metric("batches_total", "counter", "Micro-batches done since then.", "batches"),
    Metric(
        "batch_id", "gauge", "The number of the last micro-batch, since the checkpoint began.", "batch_id"
    ),
    Metric("rows_in_per_second", "gauge", "Rows that arrived by the second, last batch.", "rows_in_per_s"),
    Metric(
        "rows_done_per_second", "gauge", "Rows dealt with by second of work, last batch.", "rows_done_per_s"
    ),
    Metric("batch_duration_seconds", "gauge", "How long the last micro-batch took.", "batch_ms", 0.001),
    Metric("lag_records", "gauge", "Offsets of the topics that are still to be read.", "lag"),
    Metric("state_rows", "gauge", "Rows of state kept.", "state_rows"),
    Metric("state_bytes", "gauge", "Memory that the state takes.", "state_bytes"),
    Metric(
        "last_progress_timestamp_seconds", "gauge", "When Spark last reported, since 1970.", "at_ms", 0.001
    ),
)


def metrics_text(pipeline: str, queries: Iterable[QueryProgress], *, is_up: bool) -> str:
    """All of it in Prometheus' text format."""
    queries = list(queries)
    lines = [
        "# HELP moldau_pipeline_up Whether the pipeline runs.",
        "# TYPE moldau_pipeline_up gauge",
        f"moldau_pipeline_up{_labels(pipeline=pipeline)} {int(is_up)}",
    ]
    for metric in METRICS:
        samples = [
            f"moldau_pipeline_{metric.name}{_labels(pipeline=pipeline, query=query.name)}"
            f" {_number(value * metric.scale)}"
            for query in queries
            if (value := getattr(query, metric.attribute)) is not None
        ]
        if samples:
            lines.append(f"# HELP moldau_pipeline_{metric.name} {metric.doc}")
            lines.append(f"# TYPE moldau_pipeline_{metric.name} {metric.kind}")
            lines += samples
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.3f}"
