"""The tables of settings say what Kafka's own definitions say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.model.settings.known import KNOWN
from moldau.model.settings.resolve import SETTINGS, find
from moldau.model.settings.setting import InvalidSetting, Scope, Setting, UpdateMode
from moldau.model.settings.table import HONOURED
from moldau.model.settings.types import Value, text_of

PROGRAMS = Path(__file__).parent.parent / "kafka"

OUR_DEFAULTS: dict[str, str] = {}  # name -> why our default is not Kafka's

# Kafka checks these with code made for one setting, which is not repeated while the setting has no effect.
UNCHECKED = {
    "authorizer.class.name",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "share.auto.offset.reset",
}

Definitions = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def kafka(run_java: Callable[..., str]) -> dict[str, Any]:
    """What Kafka defines, by scope and name."""
    found: dict[str, Any] = json.loads(run_java((PROGRAMS / "DumpSettings.java").read_text()))
    return found


def test_no_setting_is_declared_twice() -> None:
    declared = [(row.scope, row.name) for row in (*HONOURED, *KNOWN)]
    assert len(declared) == len(set(declared))


@pytest.mark.parametrize("scope", Scope)
def test_every_name_of_kafka_is_there_and_no_other_but_our_own(scope: Scope, kafka: Definitions) -> None:
    ours = {name for name in SETTINGS[scope] if not name.startswith("moldau.")}
    assert ours == set(kafka[scope.value])


@pytest.mark.parametrize("scope", Scope)
def test_types_and_defaults_are_those_of_kafka(scope: Scope, kafka: Definitions) -> None:
    def theirs(name: str) -> tuple[str, str | None, bool]:
        defined = kafka[scope.value][name]
        return defined["type"], defined["default"], not defined["has_default"]

    ours = {row.name: (row.type.code.name, text_of(row.default), row.is_required) for row in _rows(scope)}
    assert {name: row for name, row in ours.items() if name not in OUR_DEFAULTS} == {
        name: theirs(name) for name in ours if name not in OUR_DEFAULTS
    }


@pytest.mark.parametrize("scope", Scope)
def test_what_is_allowed_is_what_kafka_allows(scope: Scope, kafka: Definitions) -> None:
    ours = {row.name: row.allowed for row in _rows(scope) if row.name not in UNCHECKED}
    assert ours == {name: kafka[scope.value][name]["validity"] for name in ours}


def test_brokers_settings_change_at_run_time_as_in_kafka(kafka: dict[str, Any]) -> None:
    changeable = {
        row.name: row.update.value for row in _rows(Scope.BROKER) if row.update is not UpdateMode.READ_ONLY
    }
    assert changeable == kafka["update_modes"]


def test_topics_and_groups_fall_back_to_the_same_settings_of_the_broker(kafka: dict[str, Any]) -> None:
    def six(row: Setting[Value]) -> list[dict[str, str]]:
        return [{"name": synonym.name, "of_six": str(synonym.convert(6))} for synonym in row.synonyms]

    rows = [*_rows(Scope.TOPIC), *_rows(Scope.GROUP)]
    assert {row.name: six(row) for row in rows} == {
        row.name: kafka["synonyms"].get(row.name, []) for row in rows
    }


def test_only_passwords_are_kept_from_readers(kafka: Definitions) -> None:
    sensitive = {row.name for row in _rows(Scope.BROKER) if row.is_sensitive}
    assert sensitive == {name for name, row in kafka["broker"].items() if row["type"] == "PASSWORD"}


TEXTS = {
    ("topic", "preallocate"): ("true", "TRUE", " False ", "yes", "1", ""),
    ("topic", "retention.ms"): (
        "-1", "-2", "+5", " 7 ", "007", "-0", "1_0", "0x10", "1e3", "1.0", "", "--1", "9" * 30,
        "9223372036854775807", "9223372036854775808",
    ),
    ("topic", "segment.bytes"): ("1048576", "1048575", "2147483647", "2147483648"),
    ("topic", "compression.gzip.level"): ("-1", "0", "1", "9", "10", "-2"),
    ("topic", "compression.zstd.level"): ("-131072", "-131073", "22", "23"),
    ("topic", "min.cleanable.dirty.ratio"): (
        "0.5", "0.50", "1", "1d", "1F", ".5", "5.", "1e-1", "1e-4", "0.001",
        "0.00099", "-0.1", "1.1", "0", "-0",
        "inf", "Infinity", "1_0", "", ".", "e1", "1e999", "0.1234567890123",
    ),
    ("broker", "log.cleaner.io.max.bytes.per.second"): (
        "9999999", "10000000", "12345678.9", "99999999.9999", "2147483647", "1e21", "1e22", "-12345678",
        "1.7976931348623157E308",
    ),
    ("broker", "offsets.topic.replication.factor"): ("32767", "32768", "0", "1"),
    ("topic", "compression.type"): ("gzip", " gzip ", "GZIP", "none", ""),
    ("topic", "message.timestamp.type"): ("CreateTime", "createtime", "LogAppendTime"),
    ("topic", "cleanup.policy"): (
        "delete", "compact,delete", "delete , compact", "", " ", "delete,", ",", "delete,delete",
        "DELETE", "none",
    ),
    ("broker", "group.consumer.migration.policy"): ("Upgrade", "DISABLED", "no"),
    ("broker", "listeners"): ("", "A://:1", "A://:1, B://:2", "A://:1,A://:1", "A://:1,"),
    ("broker", "ssl.cipher.suites"): ("", "a", "a,a", "a,,b"),
    ("broker", "process.roles"): ("broker", "broker,controller", "broker,broker", "", "king"),
    ("broker", "remote.log.storage.manager.class.name"): ("", "x.Y"),
    ("broker", "broker.rack"): ("", " a b "),
}  # fmt: skip


def test_texts_are_read_and_written_as_kafka_reads_and_writes_them(run_java: Callable[..., str]) -> None:
    asked = [(scope, name, text) for (scope, name), texts in TEXTS.items() for text in texts]
    answers = json.loads(run_java((PROGRAMS / "ParseSettings.java").read_text(), stdin=json.dumps(asked)))
    theirs = dict(zip(asked, answers, strict=True))
    assert {question: _read_and_write(*question) for question in asked} == theirs


def _rows(scope: Scope) -> list[Setting[Value]]:
    return [row for row in SETTINGS[scope].values() if not row.name.startswith("moldau.")]


def _read_and_write(scope: str, name: str, text: str) -> str | None:
    try:
        return text_of(find(Scope(scope), name).parse(text))
    except InvalidSetting:
        return None
