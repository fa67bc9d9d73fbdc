"""The options of the data source, reading and writing, in one table, and what a query makes of them.

The names are those of Spark's connector for Kafka. `docs/spark.md` shows the table.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeVar

from moldau.client.settings import ClientSettings, SettingValue, parse_addresses
from moldau.model.errors import KafkaError
from moldau.model.ids import TopicPartition, check_topic_name
from moldau.model.settings.setting import InvalidSetting
from moldau.spark.plan.offsets import (
    EARLIEST,
    LATEST,
    BadOffsets,
    Offsets,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)

T = TypeVar("T")

BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
# In the environment: options, as JSON, for whoever leaves them out, also in SQL. `moldau pipeline` sets it.
DEFAULTS_VARIABLE: Final = "MOLDAU_SPARK_DEFAULTS"
KAFKA_PREFIX: Final = "kafka."


class Use(Enum):
    """What kind of query an option is for."""

    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"


READ: Final = (Use.BATCH, Use.STREAM)
EVERYWHERE: Final = (*READ, Use.WRITE)


@dataclass(frozen=True, slots=True)
class Option:
    """One row: how the option is called, what it may be, and what it is for."""

    name: str
    value: str
    default: str
    uses: tuple[Use, ...]
    doc: str


OPTIONS: Final = (
    Option(
        BOOTSTRAP_SERVERS,
        "`host:port,...`",
        "must be given",
        EVERYWHERE,
        "Brokers to begin with; one that answers names the others.",
    ),
    Option("subscribe", "`topic,...`", "", READ, "The topics to read, all partitions of them."),
    Option(
        "subscribePattern",
        "regular expression",
        "",
        READ,
        "The topics to read: those whose whole name matches. A stream picks up new ones as they come.",
    ),
    Option("assign", '`{"topic": [0, 1]}`', "", READ, "The partitions to read."),
    Option(
        "startingOffsets",
        '`earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`',
        "`latest` (stream), `earliest` (batch)",
        READ,
        "Where to begin; in JSON -2 is earliest, -1 latest. A batch cannot begin at the latest, and a stream"
        " that is restarted goes on where it was.",
    ),
    Option(
        "startingTimestamp",
        "milliseconds",
        "",
        READ,
        "Begin, in all partitions, at the first record with this timestamp or a later one. Goes before"
        " `startingOffsetsByTimestamp` and `startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        '`{"topic": {"0": 1700000000000}}`',
        "",
        READ,
        "The same by partition. Goes before `startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error` or `latest`",
        "`error`",
        READ,
        "What to do where no record is as late as the starting timestamp: fail, or begin at the end.",
    ),
    Option(
        "endingOffsets",
        '`latest` or `{"topic": {"0": 50, "1": -1}}`',
        "`latest`",
        (Use.BATCH,),
        "Where to stop: at this offset, which is not read any more; -1 is latest.",
    ),
    Option(
        "endingTimestamp",
        "milliseconds",
        "",
        (Use.BATCH,),
        "Stop, in all partitions, at the first record with this timestamp or a later one; at the end if there"
        " is none. Goes before `endingOffsetsByTimestamp` and `endingOffsets`.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        '`{"topic": {"0": 1700000000000}}`',
        "",
        (Use.BATCH,),
        "The same by partition. Goes before `endingOffsets`.",
    ),
    Option(
        "failOnDataLoss",
        "`true` or `false`",
        "`true`",
        READ,
        "Whether to fail where records are gone that were to be read: deleted, expired, truncated. With"
        " `false` the query says so in its log and goes on with what is there.",
    ),
    Option("includeHeaders", "`true` or `false`", "`false`", READ, "Whether there is a column `headers`."),
    Option(
        "minPartitions",
        "number",
        "one per topic partition",
        READ,
        "Cut large ranges so that there are about so many tasks, if there would be fewer.",
    ),
    Option(
        "maxRecordsPerPartition", "number", "", READ, "Cut ranges so that no task has more offsets than this."
    ),
    Option(
        "minOffsetsPerTask",
        "number",
        "1000",
        READ,
        "Let small ranges of several partitions share a task until it has so many offsets: a task costs more"
        " than the reading of a few hundred records. With 1, or with one of the two options above, they do"
        " not. Spark's connector has no such option.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "number",
        "",
        (Use.STREAM,),
        "About how many offsets a micro-batch has at most.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "number",
        "",
        (Use.STREAM,),
        "Wait for so many offsets before a micro-batch, up to `maxTriggerDelay`. Without effect for"
        " `availableNow`.",
    ),
    Option(
        "maxTriggerDelay",
        "duration, such as `30s`",
        "`15m`",
        (Use.STREAM,),
        "How long `minOffsetsPerTrigger` may hold a micro-batch back.",
    ),
    Option(
        "groupIdPrefix",
        "text",
        "`spark-moldau-source`",
        (Use.STREAM,),
        "The stream commits its offsets to the group `<prefix>-<id>`, with an id that it keeps in its"
        " checkpoint.",
    ),
    Option(
        "kafka.group.id",
        "text",
        "",
        (Use.STREAM,),
        "The whole id of that group. Two queries must not share one.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "milliseconds",
        "120000",
        READ,
        "How long a task waits for records that must be there, through broker restarts, before it fails.",
    ),
    Option(
        "fetchOffset.numRetries",
        "number",
        "3",
        READ,
        "How often the driver tries again to connect, and asks again where a log is that seems to be gone, or"
        " to end before what was read.",
    ),
    Option("fetchOffset.retryIntervalMs", "milliseconds", "1000", READ, "How long it waits in between."),
    Option(
        "topic",
        "name",
        "the column `topic`",
        (Use.WRITE,),
        "Where all rows go, whatever a column `topic` says.",
    ),
    Option(
        "includeTimestamp",
        "`true` or `false`",
        "`false`",
        (Use.WRITE,),
        "Whether records get the time in the column `timestamp`, rather than that of their writing.",
    ),
)

# What Spark itself puts among the options.
_OF_SPARK: Final = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "outputmode", "mergeschema"}
)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}

# Settings of Kafka's clients that cannot be had here, and why.
REFUSED_SETTINGS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "Say where to begin with the option startingOffsets.",
    "enable.auto.commit": "A stream commits what it has processed, and nothing else.",
    "key.deserializer": "Keys are bytes: cast the column key.",
    "value.deserializer": "Values are bytes: cast the column value.",
    "key.serializer": "Keys are bytes: cast the column key.",
    "value.serializer": "Values are bytes: cast the column value.",
    "interceptor.classes": "There are no interceptors.",
    "transactional.id": "The sink has no transactions yet.",
}
# Settings that tune Kafka's Java clients and change nothing that a query sees.
IGNORED_SETTINGS: Final = frozenset(
    (
        *("auto.include.jmx.reporter", "client.dns.lookup", "connections.max.idle.ms", "enable.metrics.push"),
        *("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
        *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "send.buffer.bytes"),
        *("socket.connection.setup.timeout.max.ms", "exclude.internal.topics", "metadata.max.idle.ms"),
    )
)
# Security that the client does not have.
_UNSUPPORTED_PREFIXES: Final = ("sasl.", "ssl.", "security.providers")
# What the Java client does by itself, under both its names.
_PARTITIONERS_WRITTEN: Final = ("default", "murmur2_random")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SETTINGS: Final = tuple(row.name.replace("_", ".") for row in fields(ClientSettings))


def settings_of(options: Mapping[str, str]) -> dict[str, SettingValue]:
    """The settings for `moldau.client` among the options `kafka.*`; InvalidSetting: it cannot be had."""
    settings: dict[str, SettingValue] = {}
    for name, value in options.items():
        setting = name.lower().removeprefix(KAFKA_PREFIX)
        if setting == name.lower() or name.lower() in _BY_NAME or setting in IGNORED_SETTINGS:
            continue
        if setting in REFUSED_SETTINGS:
            raise InvalidSetting(f"Option {name} cannot be given. {REFUSED_SETTINGS[setting]}")
        if setting not in _SETTINGS:
            raise InvalidSetting(_unknown_setting(name, setting))
        try:
            ClientSettings.parse({setting: value})
        except InvalidSetting as why:
            raise InvalidSetting(f"Option {name}: {why.message}") from None
        settings[setting.replace(".", "_")] = value
    ClientSettings.parse(settings)
    return settings


def with_defaults(options: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """The options, and behind them those that the environment has for whoever leaves them out."""
    given = {name.lower() for name in options}
    for name, value in json.loads(os.environ.get(DEFAULTS_VARIABLE, "{}")).items():
        if name.lower() not in given:
            options[name] = value
    return options


def servers_of(options: Mapping[str, str]) -> str:
    """The brokers to begin with."""
    given = {name.lower(): value for name, value in options.items()}
    servers = given.get(BOOTSTRAP_SERVERS, "")
    if not servers.strip():
        raise InvalidSetting(f'Option {BOOTSTRAP_SERVERS} is missing, for example "localhost:9092".')
    try:
        parse_addresses(servers)
    except InvalidSetting as why:
        raise InvalidSetting(f"Option {BOOTSTRAP_SERVERS}: {why.message}") from None
    return servers


def check_names(options: Iterable[str], use: Use | None = None) -> None:
    """Raise InvalidSetting for a name that looks like a mistake, or that is for another kind of query.

    Names that resemble none of ours are left alone, for Spark passes options of its own.
    """
    for name in options:
        low = name.lower()
        option = _BY_NAME.get(low)
        if option is None:
            if low in _OF_SPARK or low.startswith(KAFKA_PREFIX):
                continue
            close = get_close_matches(low, [*_BY_NAME], n=1, cutoff=0.8)
            if close:
                raise InvalidSetting(f"There is no option {name}. Did you mean {_BY_NAME[close[0]].name}?")
        elif use is Use.STREAM and option.uses == (Use.BATCH,):
            raise InvalidSetting(f"Option {option.name} is for batch queries: a stream does not end.")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """By partition, or for all: an offset, LATEST or EARLIEST."""

    everywhere: int = LATEST
    offsets: Offsets | None = None


@dataclass(frozen=True, slots=True)
class AtTimes:
    """By partition, or for all: the first record at or after a time."""

    everywhere: int = 0
    timestamps: Offsets | None = None


Bound = AtOffsets | AtTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All that a query was told about what to read, and how."""

    bootstrap_servers: str
    settings: Mapping[str, SettingValue]
    subscription: Subscription
    start: Bound
    end: Bound
    has_latest_fallback: bool
    fail_on_data_loss: bool
    include_headers: bool
    tasks_min: int | None
    task_records_max: int | None
    task_offsets_min: int
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms_max: int
    group_id: str
    group_id_prefix: str
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Use | None) -> ReadOptions:
        """What the options say; InvalidSetting names the first that is wrong, and what to do.

        Without a `use`, because it is not known yet, what is wrong for one of them only is let pass.
        """
        check_names(given, use)
        read = _Reading(given)
        is_stream = use is Use.STREAM
        options = cls(
            bootstrap_servers=servers_of(given),
            settings={"isolation_level": "read_committed", **settings_of(given)},
            subscription=read.subscription(),
            start=read.bound("starting", LATEST if is_stream else EARLIEST),
            end=read.bound("ending", LATEST),
            has_latest_fallback=read.one_of(
                "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
            ),
            fail_on_data_loss=read.truth("failOnDataLoss", is_default=True),
            include_headers=read.truth("includeHeaders", is_default=False),
            tasks_min=read.number("minPartitions"),
            task_records_max=read.number("maxRecordsPerPartition"),
            task_offsets_min=read.parsed("minOffsetsPerTask", _positive, "1000"),
            trigger_offsets_max=read.number("maxOffsetsPerTrigger"),
            trigger_offsets_min=read.number("minOffsetsPerTrigger"),
            trigger_delay_ms_max=read.parsed("maxTriggerDelay", parse_duration_ms, "15m"),
            group_id=read.text("kafka.group.id"),
            group_id_prefix=read.text("groupIdPrefix") or "spark-moldau-source",
            poll_timeout_ms=read.number("kafkaConsumer.pollTimeoutMs") or 120_000,
            offset_retries=read.parsed("fetchOffset.numRetries", _count, "3"),
            offset_retry_interval_ms=read.parsed("fetchOffset.retryIntervalMs", _count, "1000"),
        )
        options.check(use)
        return options

    def check(self, use: Use | None) -> None:
        """Raise InvalidSetting if options contradict each other."""
        low, high = self.trigger_offsets_min, self.trigger_offsets_max
        if low is not None and high is not None and low > high:
            raise InvalidSetting(
                f"Option minOffsetsPerTrigger ({low}) is above maxOffsetsPerTrigger ({high})."
            )
        if use is Use.BATCH:
            _check_batch_bounds(self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """All that a query was told about where to write, and how."""

    bootstrap_servers: str
    settings: Mapping[str, SettingValue]
    topic: str | None
    include_timestamp: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """What the options say; InvalidSetting names the first that is wrong, and what to do."""
        check_names(given, Use.WRITE)
        read = _Reading(given)
        settings = settings_of(given)
        if settings.get("partitioner", "default") not in _PARTITIONERS_WRITTEN:
            raise InvalidSetting(
                "Option kafka.partitioner: rows go where the Java client sends their keys. For any other"
                " place give them a column 'partition'."
            )
        return cls(
            bootstrap_servers=servers_of(given),
            settings=settings,
            topic=read.parsed("topic", _topic, "") if read.has("topic") else None,
            include_timestamp=read.truth("includeTimestamp", is_default=False),
        )


class _Reading:
    """Options by name, whatever their case; what is wrong with one is said with its name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), "").strip()

    def parsed(self, name: str, parse: Callable[[str], T], default: str) -> T:
        text = self.text(name) or default
        try:
            return parse(text)
        except ValueError as why:
            raise InvalidSetting(f"Option {name} is {text!r}: {why}.") from None

    def number(self, name: str) -> int | None:
        return self.parsed(name, _positive, "") if self.text(name) else None

    def one_of(self, name: str, words: Mapping[str, T], default: str) -> T:
        def parse(text: str) -> T:
            if text.lower() not in words:
                raise ValueError(f"it must be one of {', '.join(words)}")
            return words[text.lower()]

        return self.parsed(name, parse, default)

    def truth(self, name: str, *, is_default: bool) -> bool:
        return self.one_of(name, {"true": True, "false": False}, str(is_default).lower())

    def subscription(self) -> Subscription:
        ways = ("subscribe", "subscribePattern", "assign")
        given = [way for way in ways if way.lower() in self._given]
        if len(given) != 1:
            said = f"but {' and '.join(given)} are" if given else "and none is"
            raise InvalidSetting(f"One of the options {', '.join(ways)} must be given, {said}.")
        if not self.text(given[0]):
            raise InvalidSetting(f"Option {given[0]} is empty: it must say what to read.")
        match given[0]:
            case "subscribe":
                return Subscription(topics=self.parsed("subscribe", _topics, ""))
            case "subscribePattern":
                return Subscription(pattern=self.parsed("subscribePattern", _pattern, ""))
            case _:
                return Subscription(partitions=self.parsed("assign", parse_partitions, ""))

    def bound(self, side: str, default: int) -> Bound:
        by_time, by_times, by_offsets = (
            f"{side}Timestamp",
            f"{side}OffsetsByTimestamp",
            f"{side}Offsets",
        )
        if self.text(by_time):
            return AtTimes(everywhere=self.parsed(by_time, _count, ""))
        if self.text(by_times):
            return AtTimes(timestamps=self.parsed(by_times, parse_timestamps, ""))
        text = self.text(by_offsets)
        words = {"": default, "latest": LATEST, "earliest": EARLIEST}
        if text.lower() in words:
            return AtOffsets(everywhere=words[text.lower()])
        return AtOffsets(offsets=self.parsed(by_offsets, _offsets, ""))


def parse_duration_ms(text: str) -> int:
    """`500ms`, `30s`, `15m`, `2h`, `1d`, as Spark spells them; a bare number is milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("a duration is a number and a unit, such as 500ms, 30s, 15m, 2h")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _check_batch_bounds(start: Bound, end: Bound) -> None:
    if isinstance(start, AtOffsets):
        _refuse(start, LATEST, "startingOffsets", "a batch cannot begin at the latest offset (-1)")
    if isinstance(end, AtOffsets):
        _refuse(end, EARLIEST, "endingOffsets", "a batch cannot end at the earliest offset (-2)")


def _refuse(bound: AtOffsets, offset: int, name: str, why: str) -> None:
    if bound.offsets is None:
        if bound.everywhere == offset:
            raise InvalidSetting(f"Option {name}: {why}.")
        return
    for place, given in bound.offsets.items():
        if given == offset:
            raise InvalidSetting(f"Option {name}, {place}: {why}.")


def _unknown_setting(name: str, setting: str) -> str:
    if setting.startswith(_UNSUPPORTED_PREFIXES):
        return (
            f"Option {name} is not supported: of Kafka's security there is TLS, with security.protocol=SSL"
            " and a file of trusted certificates in kafka.ssl.ca.location."
        )
    close = get_close_matches(setting, [*_SETTINGS, *IGNORED_SETTINGS], n=1)
    hint = f" Did you mean {KAFKA_PREFIX}{close[0]}?" if close else ""
    return f"Option {name} is no setting of Moldau's client.{hint}"


def _positive(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise ValueError("it must be at least 1")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("it must be a whole number that is not negative")
    return int(text)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not topics:
        raise ValueError("it names no topic")
    for name in topics:
        try:
            check_topic_name(name)
        except KafkaError as why:
            raise ValueError(why.message) from None
    return topics


def _topic(text: str) -> str:
    try:
        return check_topic_name(text)
    except KafkaError as why:
        raise ValueError(why.message) from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as why:
        raise ValueError(f"it is no regular expression ({why})") from None
    return text


def _offsets(text: str) -> dict[TopicPartition, int]:
    try:
        return parse_offsets(text)
    except BadOffsets as why:
        raise BadOffsets(
            f'{why}; it must be earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}'
        ) from None
