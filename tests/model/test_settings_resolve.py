"""Of all that is said about a setting, the most specific holds."""

import pytest

from moldau.model.settings.resolve import SETTINGS, Candidate, Layer, Settings, Source, resolve
from moldau.model.settings.setting import InvalidSetting, Scope
from moldau.model.settings.table import (
    COMPRESSION_TYPE,
    FLUSH_MS,
    PRODUCER_ID_EXPIRATION_MS,
    RETENTION_MS,
    SEGMENT_MS,
    CompressionChoice,
)

HOUR_MS = 3_600_000


def test_without_any_word_the_default_holds() -> None:
    settings = resolve(Scope.TOPIC)
    assert settings[RETENTION_MS] == 168 * HOUR_MS
    assert settings.source(RETENTION_MS) is Source.DEFAULT
    assert settings.warnings == ()


def test_every_default_that_a_topic_falls_back_to_is_its_own_default() -> None:
    settings = resolve(Scope.TOPIC)
    assert {name: settings[row] for name, row in SETTINGS[Scope.TOPIC].items()} == {
        name: row.default for name, row in SETTINGS[Scope.TOPIC].items()
    }


LAYERS = [
    Layer(Source.TOPIC, {"retention.ms": "1"}),
    Layer(Source.BROKER, {"log.retention.ms": "2"}),
    Layer(Source.CLUSTER, {"log.retention.ms": "3"}),
    Layer(Source.STATIC, {"log.retention.hours": "6", "log.retention.minutes": "5", "log.retention.ms": "4"}),
]


@pytest.mark.parametrize(
    ("layers", "value", "source"),
    [
        (LAYERS, 1, Source.TOPIC),
        (LAYERS[::-1], 1, Source.TOPIC),
        (LAYERS[1:], 2, Source.BROKER),
        (LAYERS[2:], 3, Source.CLUSTER),
        (LAYERS[3:], 4, Source.STATIC),
    ],
)
def test_the_most_specific_source_decides(layers: list[Layer], value: int, source: Source) -> None:
    settings = resolve(Scope.TOPIC, *layers)
    assert settings[RETENTION_MS] == value
    assert settings.source(RETENTION_MS) is source


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        ({"log.retention.hours": "6", "log.retention.minutes": "5", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "6", "log.retention.minutes": "5"}, 5 * 60_000),
        ({"log.retention.hours": "6"}, 6 * HOUR_MS),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_in_one_file_the_finer_unit_decides(texts: dict[str, str], value: int) -> None:
    assert resolve(Scope.TOPIC, Layer(Source.STATIC, texts))[RETENTION_MS] == value


def test_all_that_is_said_can_be_told_in_order() -> None:
    assert _candidates(resolve(Scope.TOPIC, *LAYERS), "retention.ms") == [
        Candidate("retention.ms", 1, Source.TOPIC),
        Candidate("log.retention.ms", 2, Source.BROKER),
        Candidate("log.retention.ms", 3, Source.CLUSTER),
        Candidate("log.retention.ms", 4, Source.STATIC),
        Candidate("log.retention.minutes", 5 * 60_000, Source.STATIC),
        Candidate("log.retention.hours", 6 * HOUR_MS, Source.STATIC),
        Candidate("log.retention.hours", 168 * HOUR_MS, Source.DEFAULT),
    ]


def test_everything_is_told_by_name_honoured_or_not() -> None:
    entries = resolve(Scope.TOPIC).entries()
    assert [entry.setting.name for entry in entries] == sorted(SETTINGS[Scope.TOPIC])
    honoured = {entry.setting.name: entry.is_honoured for entry in entries}
    assert honoured["retention.ms"]
    assert not honoured["remote.storage.enable"]


def test_a_brokers_own_settings_have_the_same_layers() -> None:
    static = Layer(Source.STATIC, {"producer.id.expiration.ms": "9", "log.roll.hours": "2"})
    assert resolve(Scope.BROKER, static)[PRODUCER_ID_EXPIRATION_MS] == 9
    dynamic = Layer(Source.CLUSTER, {"producer.id.expiration.ms": "8"})
    assert resolve(Scope.BROKER, static, dynamic)[PRODUCER_ID_EXPIRATION_MS] == 8
    assert resolve(Scope.TOPIC, static, dynamic)[SEGMENT_MS] == 2 * HOUR_MS


def test_a_setting_of_the_same_name_for_brokers_and_topics_is_two_settings() -> None:
    static = Layer(Source.STATIC, {"compression.type": "zstd"})
    assert resolve(Scope.TOPIC, static)[COMPRESSION_TYPE] is CompressionChoice.ZSTD
    topic = Layer(Source.TOPIC, {"compression.type": "lz4"})
    assert resolve(Scope.TOPIC, static, topic)[COMPRESSION_TYPE] is CompressionChoice.LZ4


def test_flushing_falls_back_to_the_scheduler_of_the_broker() -> None:
    scheduler = Layer(Source.STATIC, {"log.flush.scheduler.interval.ms": "50"})
    assert resolve(Scope.TOPIC, scheduler)[FLUSH_MS] == 50


def test_a_group_falls_back_to_its_broker() -> None:
    static = Layer(Source.STATIC, {"group.consumer.session.timeout.ms": "50000"})
    group = Layer(Source.GROUP, {"consumer.session.timeout.ms": "46000"})
    settings = resolve(Scope.GROUP, static, group)
    assert [candidate.value for candidate in _candidates(settings, "consumer.session.timeout.ms")] == [
        46_000,
        50_000,
        45_000,
    ]


def test_an_unknown_name_is_refused_with_the_likeliest_names() -> None:
    with pytest.raises(InvalidSetting) as refused:
        resolve(Scope.TOPIC, Layer(Source.TOPIC, {"retnetion.ms": "5"}))
    assert refused.value.message.startswith(
        "There is no topic setting 'retnetion.ms'. Did you mean retention.ms"
    )


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidSetting) as refused:
        resolve(Scope.TOPIC, Layer(Source.TOPIC, {"zzz": "5"}))
    assert refused.value.message == "There is no topic setting 'zzz'."


def test_a_brokers_name_is_no_name_of_a_topic() -> None:
    with pytest.raises(InvalidSetting, match="no topic setting 'log\\.retention\\.ms'"):
        resolve(Scope.TOPIC, Layer(Source.TOPIC, {"log.retention.ms": "5"}))


def test_a_setting_without_effect_is_accepted_with_a_warning() -> None:
    settings = resolve(Scope.TOPIC, Layer(Source.TOPIC, {"remote.storage.enable": "true"}))
    assert settings.warnings == ("remote.storage.enable is accepted but has no effect.",)


def test_a_setting_without_effect_must_still_make_sense() -> None:
    with pytest.raises(InvalidSetting):
        resolve(Scope.TOPIC, Layer(Source.TOPIC, {"remote.storage.enable": "perhaps"}))


def test_a_setting_of_one_listener_is_accepted_with_a_warning() -> None:
    name = "listener.name.internal.ssl.keystore.location"
    settings = resolve(Scope.BROKER, Layer(Source.STATIC, {name: "/keys"}))
    assert settings.warnings == (f"{name} is accepted but has no effect.",)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (Source.BROKER, "log.retention.hours", "is read-only: it cannot be set on a running broker"),
        (Source.CLUSTER, "log.retention.hours", "is read-only: it cannot be set for all brokers at once"),
        (Source.CLUSTER, "cordoned.log.dirs", "is per-broker: it cannot be set for all brokers at once"),
    ],
)
def test_a_setting_changes_at_run_time_only_if_it_may(source: Source, name: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        resolve(Scope.BROKER, Layer(source, {name: "1"}))


def test_what_the_broker_may_say_can_still_be_wrong_for_a_topic() -> None:
    with pytest.raises(InvalidSetting) as refused:
        resolve(Scope.TOPIC, Layer(Source.STATIC, {"log.roll.ms": "0"}))
    assert refused.value.message == "Invalid value 0 for log.roll.ms: segment.ms must be at least 1."


def test_compaction_cannot_have_to_wait_longer_than_it_may() -> None:
    with pytest.raises(InvalidSetting, match=r"min\.compaction\.lag\.ms \(5\) must not exceed"):
        resolve(
            Scope.TOPIC, Layer(Source.TOPIC, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
        )


def _candidates(settings: Settings, name: str) -> list[Candidate]:
    return next(list(entry.candidates) for entry in settings.entries() if entry.setting.name == name)
