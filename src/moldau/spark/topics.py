"""What the driver asks the cluster: which partitions there are, and where their logs begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from moldau.client import EARLIEST, LATEST, ClientError
from moldau.client.blocking import BlockingClient
from moldau.client.metadata import TopicView
from moldau.client.offsets import NO_OFFSET, place_of
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition, uuid_to_text
from moldau.spark.connections import shared_client
from moldau.spark.errors import BadBound, MissingTopic
from moldau.spark.options import AtOffsets, AtTimes, Bound, ReadOptions


@dataclass(frozen=True, slots=True)
class Found:
    """The partitions to read, and the ids of their topics."""

    places: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


class Topics:
    """The topics that a query reads, as the cluster knows them now."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._isolation = ClientSettings.parse(options.settings).isolation_level

    @cached_property
    def client(self) -> BlockingClient:
        """The connection to the cluster, made when it is first needed."""
        options = self._options
        patience_s = options.offset_retries * options.offset_retry_interval_ms / 1_000
        return shared_client(options.bootstrap_servers, options.settings, patience_s=patience_s)

    def find(self, *, missing_ok: bool = False) -> Found:
        """The partitions that the query is about; MissingTopic if it names one that does not exist."""
        wanted = self._options.subscription
        if wanted.pattern:
            pattern = re.compile(wanted.pattern)
            listed = self.client.admin.list_topics()
            views = [
                view for name, view in listed.items() if pattern.fullmatch(name) and not view.is_internal
            ]
            return _found(views)
        names = wanted.topics or tuple(dict.fromkeys(place.topic for place in wanted.partitions))
        found = _found(self._describe(names, missing_ok=missing_ok))
        if wanted.topics:
            return found
        absent = [place for place in wanted.partitions if place not in found.places]
        if absent and not missing_ok:
            raise MissingTopic(f"Option assign names partition {absent[0]}, which does not exist.")
        return Found(tuple(place for place in wanted.partitions if place not in absent), found.topic_ids)

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of partitions begin."""
        return self._look_up(dict.fromkeys(places, EARLIEST))

    def latest(
        self, places: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Where what may be read of them ends."""
        return self._look_up(dict.fromkeys(places, LATEST), timeout_ms=timeout_ms)

    def resolve(
        self, bound: Bound, places: tuple[TopicPartition, ...], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """A bound as plain offsets, for exactly these partitions."""
        match bound:
            case AtTimes(everywhere, None):
                return self._at_times(dict.fromkeys(places, everywhere), is_start=is_start)
            case AtTimes(_, dict() as timestamps):
                _check_same(timestamps, places, f"{_side(is_start)}OffsetsByTimestamp")
                return self._at_times(timestamps, is_start=is_start)
            case AtOffsets(everywhere, None):
                return self._look_up(dict.fromkeys(places, everywhere))
            case AtOffsets(_, dict() as offsets):
                _check_same(offsets, places, f"{_side(is_start)}Offsets")
                symbolic = {place: offset for place, offset in offsets.items() if offset < 0}
                return {**offsets, **self._look_up(symbolic)}
            case _:
                raise AssertionError(bound)

    def first_since(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time; NO_OFFSET where nothing is as late."""
        return self._look_up(times_ms)

    def _at_times(
        self, times_ms: Mapping[TopicPartition, int], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        found = self._look_up(times_ms)
        none = [place for place, offset in found.items() if offset == NO_OFFSET]
        if none and is_start and not self._options.has_latest_fallback:
            place = none[0]
            raise BadBound(
                f"No record of {place} has timestamp {times_ms[place]} or a later one, where reading was to"
                " start. Start earlier, or set option startingOffsetsByTimestampStrategy to latest."
            )
        return {**found, **self.latest(none)}

    def _look_up(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked: dict[tuple[str, int], int] = {
            (place.topic, place.partition): time for place, time in wanted.items()
        }
        rows = self.client.admin.list_offsets(asked, isolation_level=self._isolation, timeout_ms=timeout_ms)
        return {place: rows[place].offset for place in wanted}

    def _describe(self, names: Iterable[str], *, missing_ok: bool) -> list[TopicView]:
        left = list(names)
        while left:
            try:
                return list(self.client.admin.describe_topics(*left).values())
            except ClientError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or error.where not in left:
                    raise
                if not missing_ok:
                    raise MissingTopic(
                        f"Topic {error.where!r} does not exist at {self._options.bootstrap_servers}. Check"
                        " the options subscribe and assign, or create the topic."
                    ) from None
                left.remove(str(error.where))
        return []


def _found(views: Iterable[TopicView]) -> Found:
    views = list(views)
    return Found(
        tuple(place_of((view.name, index)) for view in views for index in view.partitions),
        {view.name: uuid_to_text(view.topic_id) for view in views},
    )


def _check_same(given: Iterable[TopicPartition], places: Iterable[TopicPartition], option: str) -> None:
    lacking = sorted(set(places) - set(given))
    extra = sorted(set(given) - set(places))
    if lacking:
        raise BadBound(
            f"Option {option} has no entry for {lacking[0]}: it must have one for every partition that is"
            " read (-2 for earliest, -1 for latest)."
        )
    if extra:
        raise BadBound(f"Option {option} names {extra[0]}, which does not exist or is not read.")


def _side(is_start: bool) -> str:
    return "starting" if is_start else "ending"
