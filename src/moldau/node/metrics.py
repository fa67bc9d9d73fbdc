"""What a node counts and measures, and how Prometheus reads it.

Whoever measures asks `Metrics` for a handle once and keeps it; to count is then one addition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from moldau.model.errors import ErrorCode

Labels = Mapping[str, str]

# What `Metrics.render` writes, as HTTP names it.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# 50 µs to 26 s, each bucket twice as wide as the one before.
SECONDS_BUCKETS: Final = tuple(0.000_05 * 2**power for power in range(20))

_NO_LABELS: Final[Labels] = {}


class Counter:
    """A number that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Count so many more."""
        self.value += amount

    def samples(self, name: str, labels: str) -> Iterator[tuple[str, float]]:
        """The lines of this counter."""
        yield f"{name}{_braced(labels)}", self.value


class Gauge:
    """A number that is what it was last set to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """From now on it is this."""
        self.value = value

    def samples(self, name: str, labels: str) -> Iterator[tuple[str, float]]:
        """The lines of this gauge."""
        yield f"{name}{_braced(labels)}", self.value


class Histogram:
    """How often a value fell into each of some buckets; a bucket includes its upper bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BUCKETS) -> None:
        assert list(bounds) == sorted(bounds), bounds
        self.bounds = tuple(bounds)
        # The last one is for what is larger than every bound.
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def samples(self, name: str, labels: str) -> Iterator[tuple[str, float]]:
        """The lines of this histogram, whose buckets also count what smaller ones do."""
        separated = f"{labels}," if labels else ""
        so_far = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{{separated}le="{_number(bound)}"}}', so_far
        yield f"{name}_sum{_braced(labels)}", self.sum
        yield f"{name}_count{_braced(labels)}", so_far


Handle = TypeVar("Handle", Counter, Gauge, Histogram)
# Asked when the metrics are read: each member of a family with its labels.
Read = Callable[[], Iterable[tuple[Labels, float]]]


class Metrics:
    """Everything that one node measures."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, description: str, labels: Labels = _NO_LABELS) -> Counter:
        """The counter with this name and these labels, made if there is none."""
        return self._handle(name, description, labels, Counter, Counter)

    def gauge(self, name: str, description: str, labels: Labels = _NO_LABELS) -> Gauge:
        """The gauge with this name and these labels, made if there is none."""
        return self._handle(name, description, labels, Gauge, Gauge)

    def histogram(
        self,
        name: str,
        description: str,
        labels: Labels = _NO_LABELS,
        *,
        bounds: Sequence[float] = SECONDS_BUCKETS,
    ) -> Histogram:
        """The histogram with this name and these labels, made if there is none."""
        return self._handle(name, description, labels, Histogram, lambda: Histogram(bounds))

    def gauge_read(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A gauge that is asked for its value whenever the metrics are read."""
        self.gauges_read(name, description, lambda: [(_NO_LABELS, read())])

    def gauges_read(self, name: str, description: str, read: Read) -> None:
        """Gauges that come and go, such as one for each partition, asked for when the metrics are read."""
        self._read("gauge", name, description, read)

    def counter_read(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A counter that somebody else keeps, asked for its value whenever the metrics are read."""
        self._read("counter", name, description, lambda: [(_NO_LABELS, read())])

    def render(self) -> str:
        """All of it in Prometheus' text format, version 0.0.4."""
        lines = []
        for family in self._families.values():
            lines.append(f"# HELP {family.name} {_escaped(family.description)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [f"{sample} {_number(value)}" for sample, value in family.samples()]
        return "".join(f"{line}\n" for line in lines)

    def names(self) -> dict[str, str]:
        """The kind of each family by its name, whether it has samples yet or not."""
        return {family.name: family.kind for family in self._families.values()}

    def snapshot(self) -> dict[str, float]:
        """Every sample by its name and labels as they are rendered, for tests to look at."""
        return {sample: value for family in self._families.values() for sample, value in family.samples()}

    def _read(self, kind: str, name: str, description: str, read: Read) -> None:
        assert name not in self._families, name
        self._families[name] = _Family(name, kind, description, read)

    def _handle(
        self, name: str, description: str, labels: Labels, kind: type[Handle], make: Callable[[], Handle]
    ) -> Handle:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, kind.__name__.lower(), description)
        return family.handle(_labels(labels), kind, make)


class RequestMetrics:
    """What is measured of one API; its row in the table of APIs keeps it."""

    __slots__ = ("_api", "_errors", "_metrics", "request_bytes", "requests", "response_bytes", "seconds")

    def __init__(self, metrics: Metrics, api: str) -> None:
        labels = {"api": api}
        self.requests = metrics.counter("moldau_requests_total", "Requests that were answered.", labels)
        self.seconds = metrics.histogram(
            "moldau_request_seconds", "From a request's arrival to its answer, waiting included.", labels
        )
        self.request_bytes = metrics.counter("moldau_request_bytes_total", "Bytes of requests.", labels)
        self.response_bytes = metrics.counter("moldau_response_bytes_total", "Bytes of responses.", labels)
        self._metrics = metrics
        self._api = api
        self._errors: dict[ErrorCode, Counter] = {}

    def answered(self, *, seconds: float, request_bytes: int, response_bytes: int) -> None:
        """A request was answered, well or not."""
        self.requests.value += 1
        self.seconds.observe(seconds)
        self.request_bytes.value += request_bytes
        self.response_bytes.value += response_bytes

    def failed(self, error: ErrorCode) -> None:
        """An answer, or one of its parts, was this error."""
        counter = self._errors.get(error)
        if counter is None:
            labels = {"api": self._api, "error": error.name}
            counter = self._metrics.counter("moldau_errors_total", "Errors that were answered.", labels)
            self._errors[error] = counter
        counter.value += 1


class LoopLag:
    """How late the event loop wakes those who sleep, which is how long everyone waits for their turn."""

    __slots__ = ("seconds",)

    def __init__(self, metrics: Metrics) -> None:
        self.seconds = metrics.histogram("moldau_loop_lag_seconds", "How late the event loop woke a sleeper.")

    def woke(self, *, expected_seconds: float, actual_seconds: float) -> None:
        """A sleeper who was to wake at one time did so at another, on the same clock."""
        # A timer may round down and come a little early, which is not a lag.
        self.seconds.observe(max(0.0, actual_seconds - expected_seconds))


class _Family:
    """All samples under one name: handles that were given out, or values that are asked for."""

    __slots__ = ("_handles", "_read", "description", "kind", "name")

    def __init__(self, name: str, kind: str, description: str, read: Read | None = None) -> None:
        self.name = name
        self.kind = kind
        self.description = description
        self._read = read
        self._handles: dict[str, Counter | Gauge | Histogram] = {}

    def handle(self, labels: str, kind: type[Handle], make: Callable[[], Handle]) -> Handle:
        assert self._read is None, self.name
        assert self.kind == kind.__name__.lower(), (self.name, self.kind, kind)
        known = self._handles.get(labels)
        if known is None:
            made = self._handles[labels] = make()
            return made
        assert isinstance(known, kind), (self.name, known)
        return known

    def samples(self) -> Iterator[tuple[str, float]]:
        for labels, handle in self._handles.items():
            yield from handle.samples(self.name, labels)
        if self._read is not None:
            for members, value in self._read():
                yield f"{self.name}{_braced(_labels(members))}", value


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped_value(value)}"' for name, value in labels.items())


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escaped_value(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    # The plus makes a number of what is true or false.
    return "NaN" if value != value else repr(+value)
