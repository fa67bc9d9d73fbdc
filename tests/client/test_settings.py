"""Settings of a client by Kafka's names, and what is said about those that make no sense."""

import pytest

from moldau.client.settings import ACKS_ALL, ClientSettings, SettingValue, parse_addresses
from moldau.model.settings.setting import InvalidSetting
from moldau.wire.records.compression import Codec
from moldau.world.ports import Address


def test_settings_are_given_by_kafkas_names_or_pythons_as_text_or_as_values() -> None:
    expected = ClientSettings(linger_ms=20, acks=1, compression_type=Codec.ZSTD, check_crcs=False)
    given: dict[str, SettingValue] = {
        "linger.ms": "20",
        "acks": 1,
        "compression_type": "zstd",
        "check.crcs": False,
    }
    assert ClientSettings.parse(given) == expected


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"linger.msec": 1}, "There is no client setting 'linger.msec'. Did you mean linger.ms?"),
        ({"compresion_type": "gzip"}, "Did you mean compression.type?"),
        ({"xyzzy": 1}, "There is no client setting 'xyzzy'.$"),
        ({"acks": 2}, "Invalid value 2 for acks: must be one of all, -1, 0, 1."),
        ({"compression.type": "brotli"}, "must be one of none, gzip, snappy, lz4, zstd"),
        ({"linger.ms": "soon"}, "Invalid value 'soon' for linger.ms: must be a whole number of 32 bits."),
        ({"linger.ms": -1}, "must be at least 0"),
        ({"enable.idempotence": True, "acks": 1}, "enable.idempotence needs acks=all."),
        (
            {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
            "of at most 5: brokers remember no more",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_explained(given: dict[str, SettingValue], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        ClientSettings.parse(given)


@pytest.mark.parametrize(
    ("given", "is_idempotent"),
    [({}, True), ({"acks": 1}, False), ({"retries": 0}, False), ({"enable.idempotence": False}, False)],
)
def test_idempotence_is_on_unless_something_speaks_against_it(
    given: dict[str, SettingValue], is_idempotent: bool
) -> None:
    assert ClientSettings.parse(given).is_idempotent is is_idempotent


def test_the_defaults_are_those_of_kafka() -> None:
    settings = ClientSettings()
    assert (settings.acks, settings.linger_ms, settings.batch_size) == (ACKS_ALL, 5, 16_384)
    assert (settings.request_timeout_ms, settings.delivery_timeout_ms) == (30_000, 120_000)


def test_bootstrap_servers_are_a_list_of_hosts_and_ports() -> None:
    assert parse_addresses("a:1, [::1]:9092,") == [Address("a", 1), Address("::1", 9092)]


@pytest.mark.parametrize("text", ["", " , ", "localhost", ":9092", "a:port", "a:70000", "a:٣"])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"bootstrap\.servers"):
        parse_addresses(text)
