"""A listener with TLS, used by clients of others: records pass, and who cannot prove who he is does not."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from clients.rough_broker import RoughBroker
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without a word
from kafka.admin import KafkaAdminClient
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from world.certificates import Authority

TIMEOUT_S = 30
# More than one record of TLS, and more than a small slice of a file.
VALUES = [b"small", b"x" * 500_000]


class Club:
    """A broker with TLS and the certificates around it; the files are those that clients want to have."""

    def __init__(self, folder: Path, *, client_auth: str) -> None:
        self.authority = self._certificates(folder / "authority")
        self.stranger = self._certificates(folder / "stranger")
        self.ca = self._file(folder / "ca.pem", self.authority.certificate)
        self.wrong_ca = self._file(folder / "wrong-ca.pem", self.stranger.certificate)
        self.member = self._file(folder / "member.pem", self.authority.identity("member"))
        self.outsider = self._file(folder / "outsider.pem", self.stranger.identity("outsider"))
        identity = self._file(folder / "broker.pem", self.authority.identity("broker"))
        self.broker = RoughBroker(
            folder / "broker",
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(identity),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca),
                "listener.name.clients.ssl.client.auth": client_auth,
            },
            protocol="SSL",
        )

    @staticmethod
    def _certificates(folder: Path) -> Authority:
        folder.mkdir(parents=True)
        return Authority(folder)

    @staticmethod
    def _file(path: Path, text: str) -> Path:
        path.write_text(text)
        return path


@pytest.fixture(scope="module")
def open_club(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Club]:
    """The broker proves who it is, and clients need not."""
    club = Club(tmp_path_factory.mktemp("tls"), client_auth="none")
    with club.broker:
        yield club


@pytest.fixture(scope="module")
def closed_club(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Club]:
    """Both prove who they are."""
    club = Club(tmp_path_factory.mktemp("mtls"), client_auth="required")
    with club.broker:
        yield club


# ----------------------------------------------------------------------------- librdkafka


def librdkafka(club: Club, ca: Path, identity: Path | None = None) -> dict[str, str | int | float | bool]:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": club.broker.address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
        "log_level": 0,
    }
    if identity is not None:
        settings |= {"ssl.certificate.location": str(identity), "ssl.key.location": str(identity)}
    return settings


def round_trip_of_librdkafka(settings: dict[str, str | int | float | bool], topic: str) -> None:
    admin = AdminClient(settings)
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    created[topic].result(TIMEOUT_S)
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "never joined"})
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        read = [message.value() for message in consumer.consume(len(VALUES), timeout=TIMEOUT_S)]
    assert read == VALUES


def errors_of_librdkafka(settings: dict[str, str | int | float | bool]) -> set[str]:
    """What librdkafka says of its connections while it does not get any metadata."""
    told: set[str] = set()

    def on_error(error: confluent_kafka.KafkaError) -> None:
        told.add(error.name())

    admin = AdminClient(settings | {"error_cb": on_error})  # type: ignore[arg-type]  # no stub knows it
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    return told


def test_librdkafka_writes_and_reads_over_tls(open_club: Club) -> None:
    round_trip_of_librdkafka(librdkafka(open_club, open_club.ca), "librdkafka")
    open_club.broker.check_health()


def test_librdkafka_does_not_talk_to_a_broker_that_its_authority_does_not_know(open_club: Club) -> None:
    assert "_SSL" in errors_of_librdkafka(librdkafka(open_club, open_club.wrong_ca))
    open_club.broker.check_health()


def test_librdkafka_with_a_certificate_is_let_in(closed_club: Club) -> None:
    round_trip_of_librdkafka(librdkafka(closed_club, closed_club.ca, closed_club.member), "librdkafka")
    closed_club.broker.check_health()


@pytest.mark.parametrize("has_certificate", [False, True], ids=["none", "a stranger's"])
def test_librdkafka_without_a_certificate_of_ours_is_not_let_in(
    closed_club: Club, has_certificate: bool
) -> None:
    identity = closed_club.outsider if has_certificate else None
    errors_of_librdkafka(librdkafka(closed_club, closed_club.ca, identity))
    closed_club.broker.check_health()


# ----------------------------------------------------------------------------- kafka-python


def kafka_python(club: Club, ca: Path, identity: Path | None = None) -> dict[str, object]:
    context = ssl.create_default_context(cafile=str(ca))
    if identity is not None:
        context.load_cert_chain(str(identity))
    return {
        "bootstrap_servers": club.broker.address,
        "security_protocol": "SSL",
        "ssl_context": context,
    }


def round_trip_of_kafka_python(settings: dict[str, object], topic: str) -> None:
    with closing(KafkaAdminClient(**settings)) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    with closing(KafkaProducer(**settings)) as producer:
        for value in VALUES:
            producer.send(topic, value, partition=0).get(TIMEOUT_S)
    with closing(KafkaConsumer(**settings, consumer_timeout_ms=TIMEOUT_S * 1000)) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        read = [next(consumer).value for _ in VALUES]
    assert read == VALUES


def test_kafka_python_writes_and_reads_over_tls(open_club: Club) -> None:
    round_trip_of_kafka_python(kafka_python(open_club, open_club.ca), "kafka-python")
    open_club.broker.check_health()


def test_kafka_python_does_not_talk_to_a_broker_that_its_authority_does_not_know(open_club: Club) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(**kafka_python(open_club, open_club.wrong_ca), bootstrap_timeout_ms=2_000)
    open_club.broker.check_health()


def test_kafka_python_with_a_certificate_is_let_in(closed_club: Club) -> None:
    round_trip_of_kafka_python(kafka_python(closed_club, closed_club.ca, closed_club.member), "kafka-python")
    closed_club.broker.check_health()


def test_kafka_python_without_a_certificate_is_not_let_in(closed_club: Club) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(**kafka_python(closed_club, closed_club.ca), bootstrap_timeout_ms=2_000)
    closed_club.broker.check_health()
