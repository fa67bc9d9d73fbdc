"""The settings of a client, by Kafka's names: `linger.ms`, or `linger_ms` where only Python names will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TypeVar

from moldau.model.settings.setting import InvalidSetting
from moldau.model.settings.types import BOOLEAN, INT32, INT64, STRING, SettingType
from moldau.wire.records.compression import Codec
from moldau.world.ports import Address

T = TypeVar("T")
SettingValue = str | int | bool

ACKS_ALL = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
IDEMPOTENT_IN_FLIGHT_MAX = 5

_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_CODECS = {codec.name.lower(): codec for codec in Codec}
_RESETS = {word: word for word in ("earliest", "latest", "none")}
_PROTOCOLS = {word: word for word in ("PLAINTEXT", "SSL")}
_IDENTIFICATIONS = {"https": "https", "HTTPS": "https", "none": "", "": ""}
_GROUP_PROTOCOLS = {word: word for word in ("consumer", "classic")}
# Kafka's settings name classes of Java; other clients name what those tell each other.
_ASSIGNOR_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_ASSIGNOR_NAMES = tuple(_ASSIGNOR_CLASSES.values())


def _one_of(words: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return words[text]

    return parse


def _at_least(lowest: int, kind: SettingType[int] = INT32) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = kind.parse(text)
        if value < lowest:
            raise ValueError(f"must be at least {lowest}")
        return value

    return parse


def _assignors(text: str) -> tuple[str, ...]:
    words = [word.strip().removeprefix("org.apache.kafka.clients.consumer.") for word in text.split(",")]
    names = tuple(_ASSIGNOR_CLASSES.get(word, word) for word in words)
    if not set(names) <= set(_ASSIGNOR_NAMES):
        raise ValueError(f"must be some of {', '.join(_ASSIGNOR_NAMES)}")
    return names


def _row(default: T, parse: Callable[[str], T], *, is_secret: bool = False) -> T:
    row: T = field(default=default, repr=not is_secret, metadata={"parse": parse})
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Every setting with its default, which is Kafka's where Kafka has one."""

    client_id: str = _row("moldau", STRING.parse)
    security_protocol: str = _row("PLAINTEXT", _one_of(_PROTOCOLS))
    # Files in PEM. Trusted certificates, as librdkafka and as Kafka names them; empty: those of the system.
    ssl_ca_location: str = _row("", STRING.parse)
    ssl_truststore_location: str = _row("", STRING.parse)
    ssl_truststore_type: str = _row("", STRING.parse)
    ssl_truststore_password: str = _row("", STRING.parse, is_secret=True)
    # The certificate that the client shows, and its key: two files for librdkafka, one for Kafka.
    ssl_certificate_location: str = _row("", STRING.parse)
    ssl_key_location: str = _row("", STRING.parse)
    ssl_key_password: str = _row("", STRING.parse, is_secret=True)
    ssl_keystore_location: str = _row("", STRING.parse)
    ssl_keystore_type: str = _row("", STRING.parse)
    ssl_keystore_password: str = _row("", STRING.parse, is_secret=True)
    # Whether the name in a broker's certificate must be the one that was connected to.
    ssl_endpoint_identification_algorithm: str = _row("https", _one_of(_IDENTIFICATIONS))
    request_timeout_ms: int = _row(30_000, _at_least(1))
    default_api_timeout_ms: int = _row(60_000, _at_least(1))
    socket_connection_setup_timeout_ms: int = _row(10_000, _at_least(1))
    metadata_max_age_ms: int = _row(300_000, _at_least(1))
    retry_backoff_ms: int = _row(100, _at_least(1))
    retry_backoff_max_ms: int = _row(1_000, _at_least(1))
    allow_auto_create_topics: bool = _row(True, BOOLEAN.parse)

    acks: int = _row(ACKS_ALL, _one_of(_ACKS))
    # None: on, unless acks or max.in.flight... speak against it.
    enable_idempotence: bool | None = _row(None, BOOLEAN.parse)
    compression_type: Codec = _row(Codec.NONE, _one_of(_CODECS))  # noqa: RUF009
    partitioner: str = _row("default", STRING.parse)
    linger_ms: int = _row(5, _at_least(0))
    batch_size: int = _row(16_384, _at_least(0))
    buffer_memory: int = _row(32 * 2**20, _at_least(1, INT64))
    max_block_ms: int = _row(60_000, _at_least(0, INT64))
    max_request_size: int = _row(2**20, _at_least(1))
    max_in_flight_requests_per_connection: int = _row(IDEMPOTENT_IN_FLIGHT_MAX, _at_least(1))
    retries: int = _row(2**31 - 1, _at_least(0))
    delivery_timeout_ms: int = _row(120_000, _at_least(1))

    fetch_min_bytes: int = _row(1, _at_least(0))
    fetch_max_bytes: int = _row(50 * 2**20, _at_least(1))
    max_partition_fetch_bytes: int = _row(2**20, _at_least(1))
    fetch_max_wait_ms: int = _row(500, _at_least(0))
    max_poll_records: int = _row(500, _at_least(1))
    isolation_level: int = _row(READ_UNCOMMITTED, _one_of(_ISOLATION))
    auto_offset_reset: str = _row("latest", _one_of(_RESETS))
    check_crcs: bool = _row(True, BOOLEAN.parse)

    # None: that of KIP-848 where the broker has it, else the classic one.
    group_protocol: str | None = _row(None, _one_of(_GROUP_PROTOCOLS))
    group_instance_id: str = _row("", STRING.parse)
    group_remote_assignor: str = _row("", STRING.parse)
    client_rack: str = _row("", STRING.parse)
    partition_assignment_strategy: tuple[str, ...] = _row(("range", "cooperative-sticky"), _assignors)
    session_timeout_ms: int = _row(45_000, _at_least(1))
    heartbeat_interval_ms: int = _row(3_000, _at_least(1))
    max_poll_interval_ms: int = _row(300_000, _at_least(1))
    enable_auto_commit: bool = _row(True, BOOLEAN.parse)
    auto_commit_interval_ms: int = _row(5_000, _at_least(0))

    @classmethod
    def parse(cls, given: Mapping[str, SettingValue]) -> ClientSettings:
        """The settings that `given` asks for; InvalidSetting says what is wrong, or was perhaps meant."""
        return cls().but(given)

    def but(self, given: Mapping[str, SettingValue]) -> ClientSettings:
        """These settings with some of them changed."""
        rows = {row.name: row for row in fields(self)}
        values: dict[str, object] = {name: getattr(self, name) for name in rows}
        for spelt, value in given.items():
            name = spelt.replace(".", "_")
            if name not in rows:
                raise InvalidSetting(f"There is no client setting {spelt!r}.{_suggestion(name, list(rows))}")
            try:
                values[name] = rows[name].metadata["parse"](_text_of(value))
            except ValueError as why:
                raise InvalidSetting(f"Invalid value {value!r} for {name.replace('_', '.')}: {why}.") from why
        changed = ClientSettings(**values)  # type: ignore[arg-type]  # each was parsed by its own row
        changed.check()
        return changed

    @property
    def shows_certificate(self) -> bool:
        """Whether brokers are told who this client is."""
        return bool(self.ssl_keystore_location or self.ssl_certificate_location)

    @property
    def is_idempotent(self) -> bool:
        """Whether the broker is to recognise and drop what a retry sends twice."""
        if self.enable_idempotence is None:
            in_flight = self.max_in_flight_requests_per_connection
            return self.acks == ACKS_ALL and in_flight <= IDEMPOTENT_IN_FLIGHT_MAX and self.retries > 0
        return self.enable_idempotence

    def check(self) -> None:
        """Raise InvalidSetting if two settings contradict each other."""
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidSetting("heartbeat.interval.ms must be less than session.timeout.ms.")
        if self.enable_idempotence and self.acks != ACKS_ALL:
            raise InvalidSetting("enable.idempotence needs acks=all.")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            raise InvalidSetting(
                "enable.idempotence needs max.in.flight.requests.per.connection of at most "
                f"{IDEMPOTENT_IN_FLIGHT_MAX}: brokers remember no more batches of a producer."
            )


def parse_addresses(text: str) -> list[Address]:
    """`host:port,host:port` as addresses; an IPv6 host stands in brackets."""
    found: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise InvalidSetting(f"bootstrap.servers has {part!r}, which is not host:port.")
        found.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise InvalidSetting("bootstrap.servers names no address.")
    return found


def _text_of(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _suggestion(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0].replace('_', '.')}?" if close else ""
