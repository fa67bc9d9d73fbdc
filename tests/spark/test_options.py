"""What options say, and how they say no."""

from collections.abc import Mapping

import pytest

from moldau.client.offsets import place_of
from moldau.client.settings import ClientSettings
from moldau.model.settings.setting import InvalidSetting
from moldau.spark.options import (
    IGNORED_SETTINGS,
    OPTIONS,
    REFUSED_SETTINGS,
    AtOffsets,
    AtTimes,
    ReadOptions,
    Subscription,
    Use,
    WriteOptions,
    check_names,
    parse_duration_ms,
    servers_of,
    settings_of,
)
from moldau.spark.plan.offsets import EARLIEST, LATEST

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}
READ = (Use.BATCH, Use.STREAM)


def parse(use: Use | None = Use.BATCH, **options: str) -> ReadOptions:
    given = {**BASE, **{name.replace("__", "."): value for name, value in options.items()}}
    return ReadOptions.parse(given, use)


def refusal(options: Mapping[str, str | None], use: Use | None = Use.BATCH) -> str:
    """What is said of these options; one that is None is not given."""
    given = {name: value for name, value in {**BASE, **options}.items() if value is not None}
    with pytest.raises(InvalidSetting) as refused:
        ReadOptions.parse(given, use)
    return refused.value.message


def test_the_least_that_must_be_said_is_where_and_what() -> None:
    options = parse()
    assert options.bootstrap_servers == "localhost:9092"
    assert options.subscription == Subscription(topics=("clicks",))
    assert (options.start, options.end) == (AtOffsets(EARLIEST), AtOffsets(LATEST))
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_begins_with_what_is_new() -> None:
    assert parse(Use.STREAM).start == AtOffsets(LATEST)


def test_only_committed_records_are_read_unless_asked_for() -> None:
    assert parse().settings["isolation_level"] == "read_committed"
    loose = parse(kafka__isolation__level="read_uncommitted")
    assert loose.settings["isolation_level"] == "read_uncommitted"


def test_names_of_options_have_no_case() -> None:
    assert parse(STARTINGOFFSETS="latest", use=Use.STREAM).start == AtOffsets(LATEST)
    assert parse(includeheaders="TRUE").include_headers


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "earliest"}, AtOffsets(EARLIEST)),
        ({"startingOffsets": " Latest "}, AtOffsets(LATEST)),
        ({"startingOffsets": '{"a": {"0": 5}}'}, AtOffsets(offsets={place_of(("a", 0)): 5})),
        ({"startingTimestamp": "17"}, AtTimes(17)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 5}}'},
            AtTimes(timestamps={place_of(("a", 0)): 5}),
        ),
        # What is more precise about time goes before.
        ({"startingTimestamp": "17", "startingOffsets": "earliest"}, AtTimes(17)),
        ({"startingTimestamp": "17", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, AtTimes(17)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 5}}', "startingOffsets": "earliest"},
            AtTimes(timestamps={place_of(("a", 0)): 5}),
        ),
    ],
)
def test_where_to_start(options: dict[str, str], start: object) -> None:
    assert parse(Use.STREAM, **options).start == start


def test_where_to_end() -> None:
    assert parse(endingTimestamp="17").end == AtTimes(17)
    assert parse(endingOffsets='{"a": {"0": -1}}').end == AtOffsets(offsets={place_of(("a", 0)): -1})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"kafka.bootstrap.servers": None},
            'kafka.bootstrap.servers is missing, for example "localhost:9092"',
        ),
        ({"kafka.bootstrap.servers": "  "}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "localhost"}, "has 'localhost', which is not host:port"),
        (
            {"subscribe": None},
            "One of the options subscribe, subscribePattern, assign must be given, and none is",
        ),
        ({"subscribePattern": "c.*"}, "but subscribe and subscribePattern are"),
        ({"subscribe": " "}, "Option subscribe is empty"),
        ({"subscribe": " , "}, "Option subscribe is ',': it names no topic"),
        ({"subscribe": "a b"}, "Topic name 'a b' is invalid"),
        (
            {"subscribe": None, "subscribePattern": "(a"},
            "subscribePattern is '(a': it is no regular expression",
        ),
        ({"subscribe": None, "assign": "a"}, "Option assign is 'a': it is no JSON"),
        ({"subscribe": None, "assign": '{"a": 0}'}, "in place of a list of partitions"),
        ({"startingOffsets": "earliset"}, "Option startingOffsets is 'earliset'"),
        ({"startingOffsets": "earliset"}, "it must be earliest, latest or JSON"),
        ({"startingOffsets": '{"a": {"0": -5}}'}, "-5 at a-0 is no offset"),
        (
            {"startingOffsets": "latest"},
            "Option startingOffsets: a batch cannot begin at the latest offset (-1)",
        ),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "Option startingOffsets, a-0: a batch cannot begin at"),
        (
            {"endingOffsets": "earliest"},
            "Option endingOffsets: a batch cannot end at the earliest offset (-2)",
        ),
        (
            {"endingOffsets": '{"a": {"3": -2}}'},
            "Option endingOffsets, a-3: a batch cannot end at the earliest",
        ),
        (
            {"startingTimestamp": "yesterday"},
            "Option startingTimestamp is 'yesterday': it must be a whole number",
        ),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "-1 at a-0 is before 1970"),
        (
            {"startingTimestamp": "99999999999999999999"},
            "Option startingTimestamp is '99999999999999999999': it is too large: 9223372036854775807",
        ),
        (
            {"endingOffsetsByTimestamp": f'{{"a": {{"0": {2**63}}}}}'},
            "9223372036854775808 at a-0 is too large: 9223372036854775807 is the most",
        ),
        ({"startingOffsets": f'{{"a": {{"0": {2**63}}}}}'}, "9223372036854775808 at a-0 is too large"),
        ({"endingOffsets": f'{{"a": {{"{2**31}": 0}}}}'}, "'2147483648' of topic 'a' is no partition number"),
        (
            {"subscribe": None, "assign": f'{{"a": [{2**31}]}}'},
            "2147483648 of topic 'a' is no partition number",
        ),
        ({"minPartitions": "9" * 5_000}, "it is too large: 9223372036854775807 is the most"),
        ({"maxTriggerDelay": "106751991168d"}, "it is too large: 106751991167 is the most"),
        ({"startingOffsetsByTimestampStrategy": "last"}, "it must be one of error, latest"),
        ({"failOnDataLoss": "no"}, "Option failOnDataLoss is 'no': it must be one of true, false"),
        ({"includeHeaders": "1"}, "it must be one of true, false"),
        ({"minPartitions": "0"}, "Option minPartitions is '0': it must be at least 1"),
        ({"minPartitions": "two"}, "it must be a whole number that is not negative"),
        ({"maxRecordsPerPartition": "-5"}, "it must be a whole number that is not negative"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger (6) is above"),
        ({"maxTriggerDelay": "soon"}, "a duration is a number and a unit, such as 500ms, 30s, 15m, 2h"),
        ({"kafkaConsumer.pollTimeoutMs": "1s"}, "Option kafkaConsumer.pollTimeoutMs is '1s'"),
        ({"startingOffset": "earliest"}, "There is no option startingOffset. Did you mean startingOffsets?"),
        ({"failOnDataloss2": "true"}, "There is no option failOnDataloss2. Did you mean failOnDataLoss?"),
        ({"kafka.group.id": "x", "kafka.isolation.levle": "y"}, "Did you mean kafka.isolation.level?"),
        ({"kafka.isolation.level": "dirty"}, "Option kafka.isolation.level: Invalid value 'dirty'"),
        ({"kafka.auto.offset.reset": "earliest"}, "Say where to begin with the option startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer cannot be given. Values are bytes"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism is not supported"),
        ({"kafka.security.protocol": "SASL_SSL"}, "must be one of PLAINTEXT, SSL"),
        ({"kafka.ssl.provider": "x"}, "kafka.ssl.ca.location"),
        ({"kafka.session.timeout.ms": "100"}, "heartbeat.interval.ms must be less than session.timeout.ms"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(options: dict[str, str | None], what: str) -> None:
    assert what in refusal(options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"a": {"0": 5}}')
    assert refusal({name: value}, Use.STREAM) == f"Option {name} is for batch queries: a stream does not end."
    # While nobody knows what kind of query it is, both may be.
    parse(None, **{name: value})


@pytest.mark.parametrize("name", ["checkpointLocation", "path", "queryName", "somethingElse", "my.option"])
def test_options_that_are_not_ours_are_let_pass(name: str) -> None:
    check_names([name])


@pytest.mark.parametrize("name", sorted(IGNORED_SETTINGS))
def test_settings_that_only_tune_another_client_change_nothing(name: str) -> None:
    assert settings_of({f"kafka.{name}": "5"}) == {}


def test_settings_are_of_one_kind_only() -> None:
    ours = {name.replace("_", ".") for name in ClientSettings.__dataclass_fields__}
    assert not ours & IGNORED_SETTINGS
    assert not IGNORED_SETTINGS & REFUSED_SETTINGS.keys()


def test_the_brokers_and_the_group_are_no_settings_of_the_client() -> None:
    given = {**BASE, "kafka.group.id": "g", "kafka.client.id": "me", "kafka.fetch.max.bytes": "1000"}
    assert settings_of(given) == {"client_id": "me", "fetch_max_bytes": "1000"}
    assert servers_of(given) == "localhost:9092"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500", 500),
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15 min", 900_000),
        ("2H", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_durations_are_spelt_as_in_spark(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "1.5s", "5 weeks"])
def test_other_durations_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        parse_duration_ms(text)


def test_every_option_is_there_once_with_all_that_its_row_needs() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.doc.endswith(".") and option.value and option.uses for option in OPTIONS)


# Read by name in the code, whether or not a row knows them.
def test_every_option_for_reading_has_an_effect() -> None:
    changes = {
        "kafka.bootstrap.servers": "other:1",
        "subscribe": "other",
        "startingOffsets": '{"a": {"0": 1}}',
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": {"0": 5}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": '{"a": {"0": 1}}',
        "endingTimestamp": "5",
        "endingOffsetsByTimestamp": '{"a": {"0": 5}}',
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "pushFilters": "true",
        "maxTriggerDelay": "1s",
        "groupIdPrefix": "x",
        "kafka.group.id": "x",
    }
    for option in OPTIONS:
        if option.uses == (Use.WRITE,) or option.name in ("subscribePattern", "assign"):
            continue
        use = option.uses[0] if option.uses[0] in READ else Use.STREAM
        changed = parse(use, **{option.name: changes.get(option.name, "7")})
        assert changed != parse(use), option.name


def test_the_largest_numbers_pass() -> None:
    assert parse(startingTimestamp="009223372036854775807").start == AtTimes(2**63 - 1)
    assert parse_duration_ms("106751991167d") == 106_751_991_167 * 86_400_000


def test_a_reason_that_is_a_sentence_is_ended_once() -> None:
    with pytest.raises(InvalidSetting) as refused:
        WriteOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "topic": ""})
    assert refused.value.message == "Option topic is '': Topic name '' is invalid: it is empty."


def test_what_spark_repeats_of_a_table_s_options_passes() -> None:
    given = {**BASE, "startingOffsets": "earliest"}
    check_names([*given, *(f"option.{name}" for name in given)], Use.BATCH)


def test_a_table_without_options_is_told_that_a_view_has_them() -> None:
    with pytest.raises(InvalidSetting) as refused:
        ReadOptions.parse({}, Use.BATCH)
    assert "Use CREATE TEMPORARY VIEW ... USING moldau OPTIONS (...) in place of" in refused.value.message
    assert "CREATE TABLE" not in refusal({"kafka.bootstrap.servers": None})
