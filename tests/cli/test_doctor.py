"""`moldau doctor`: every way in which a client does not get to its broker, and what is said about it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any

import kafka_jars
import pytest
from cli.conftest import Cli
from click.testing import CliRunner
from clients.broker_process import PRODUCTS, BrokerProcess
from clients.rough_broker import RoughBroker
from world.certificates import Authority

from moldau.cli import main
from moldau.cli._diagnosis import (
    Finding,
    Place,
    WayIn,
    of_advertised,
    of_bootstrap,
    of_clock,
    of_creation,
    of_internal_topics,
    of_kernel,
)
from moldau.cli._probe import (
    REFUSED,
    TIMED_OUT,
    Answers,
    Foreign,
    HangsUp,
    Outcome,
    Silent,
    TlsFailed,
    Unconnected,
    Unresolved,
    WantsPlaintext,
    WantsTls,
    bytes_missing,
    probe,
    read_versions,
)
from moldau.cli.doctor import advertised_listeners

BROKER = Answers({0: (3, 13), 3: (0, 13), 18: (0, 4)}, "10.0.0.1", {}, 1.0)
CONTROLLER = Answers({1: (0, 17), 18: (0, 4)}, "10.0.0.1", {}, 1.0)
HERE = Place("broker.example.org", 9092)
LISTENERS = {"INSIDE": "kafka:29092", "OUTSIDE": "kafka:9092"}


def examined(*arguments: str, exit_code: int) -> list[dict[str, Any]]:
    """The findings that are not ok."""
    result = CliRunner().invoke(main, ["doctor", *arguments, "--timeout", "5", "-o", "json"])
    assert result.exit_code == exit_code, result.output
    document = json.loads(result.stdout)
    assert document["healthy"] == (exit_code == 0)
    assert {row["section"] for row in document["findings"]} == {"installation", "cluster"}
    return [row for row in document["findings"] if row["status"] != "ok" and row["section"] == "cluster"]


# ---------------------------------------------------------------- a cluster that is well


def test_a_cluster_that_is_well_gets_a_clean_bill(cli: Cli, broker: BrokerProcess) -> None:
    assert examined(broker.address, exit_code=0) == []
    shown = cli("doctor").stdout
    assert f"The cluster at {broker.address}" in shown
    assert f"Broker 1 tells clients to connect to {broker.address}, which works from here" in shown
    assert "record kernel" in shown
    assert "The clocks here and there agree" in shown
    assert "A topic with the defaults could be created" in shown
    assert "problem" not in shown


@pytest.mark.slow
def test_kafka_is_examined_too(tmp_path: Path) -> None:
    try:
        kafka_jars.find_java()
        kafka = BrokerProcess(PRODUCTS["kafka"], tmp_path)
    except kafka_jars.Unavailable as why:
        pytest.skip(str(why))
    try:
        (share_groups,) = examined(kafka.address, exit_code=0)
        assert share_groups["status"] == "warning"
        assert "share.coordinator.state.topic.replication.factor=3" in share_groups["detail"]
    finally:
        kafka.stop()


def test_nothing_is_changed(cli: Cli, broker: BrokerProcess) -> None:
    before = cli("topic", "list", "-o", "json").stdout
    cli("doctor")
    assert cli("topic", "list", "-o", "json").stdout == before


# ---------------------------------------------------------------- who listens there


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that lets clients in one after the other and does something with each."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        # Wakes the thread, which closing alone does not.
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def answers_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hangs_up(connection: socket.socket) -> None:
    connection.recv(1000)


def test_what_is_no_broker_is_recognised() -> None:
    with listening(answers_http) as address:
        (found,) = examined(address, exit_code=5)
    assert "not in Kafka's protocol" in found["detail"]
    assert found["fix"].startswith("It is a web server.")


def test_a_web_server_that_waits_for_a_line_is_recognised() -> None:
    # Of the two that Python has this is the one that serves one connection after the other.
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        outcome = probe("127.0.0.1", server.server_port, tls=None, timeout_s=0.5)
        server.shutdown()
        thread.join()
    assert isinstance(outcome, Foreign)
    assert "It is a web server." in (of_bootstrap(HERE, outcome).fix or "")


def test_a_server_that_does_not_know_the_line_is_recognised_too() -> None:
    def knows_commands(connection: socket.socket) -> None:
        if connection.recv(1000).startswith(b"GET "):
            connection.sendall(b"-ERR wrong number of arguments for 'get' command\r\n")

    with listening(knows_commands) as address:
        (found,) = examined(address, exit_code=5)
    assert "It is perhaps Redis." in found["fix"]


def test_who_hangs_up_is_no_broker() -> None:
    with listening(hangs_up) as address:
        (found,) = examined(address, exit_code=5)
    assert "ends them at once" in found["detail"]


def test_who_says_nothing_is_not_waited_for() -> None:
    is_over = threading.Event()

    def says_nothing(connection: socket.socket) -> None:
        is_over.wait(60)

    with listening(says_nothing) as address:
        host, _, port = address.rpartition(":")
        outcome = probe(host, int(port), tls=None, timeout_s=0.2)
        is_over.set()
    assert outcome == Silent()


def test_nobody_there_is_said_with_what_to_do() -> None:
    (refused,) = examined("127.0.0.1:1", exit_code=5)
    assert "connection refused" in refused["detail"]
    assert "start the broker" in refused["fix"]
    (unknown,) = examined("nohost.invalid:9092", exit_code=5)
    assert "leads nowhere" in unknown["detail"]


def test_the_port_of_a_controller_is_recognised(tmp_path: Path) -> None:
    with RoughBroker(tmp_path) as broker:
        (found,) = examined(broker.controller_address, exit_code=5)
        # With one good address a client gets in.
        (other,) = examined(f"{broker.controller_address},{broker.address}", exit_code=1)
    assert "the port of a controller" in found["detail"]
    assert other == found


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RoughBroker, dict[str, Path]]]:
    """A broker with TLS, the certificate of its authority, and that of another."""
    folder = tmp_path_factory.mktemp("tls")
    files = {name: folder / f"{name}.pem" for name in ("broker", "ours", "other")}
    for name in ("a", "b"):
        (folder / name).mkdir()
    authority, other = Authority(folder / "a"), Authority(folder / "b")
    files["broker"].write_text(authority.identity("broker"))
    files["ours"].write_text(authority.certificate)
    files["other"].write_text(other.certificate)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files["broker"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files["ours"]),
    }
    with RoughBroker(folder / "node", settings, protocol="SSL") as broker:
        yield broker, files


def test_plaintext_at_a_port_with_tls_is_recognised(secured: tuple[RoughBroker, dict[str, Path]]) -> None:
    (found,) = examined(secured[0].address, exit_code=5)
    assert "speaks TLS, and was spoken to in plaintext" in found["detail"]
    assert "-X security.protocol=SSL" in found["fix"]


def test_tls_at_a_plaintext_port_is_recognised(broker: BrokerProcess) -> None:
    (found,) = examined(broker.address, "-X", "security.protocol=SSL", exit_code=5)
    assert "speaks in plaintext, and was spoken to with TLS" in found["detail"]


def test_whom_a_client_trusts_gets_a_clean_bill(secured: tuple[RoughBroker, dict[str, Path]]) -> None:
    broker, files = secured
    tls = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={files['ours']}"]
    assert examined(broker.address, *tls, exit_code=0) == []
    tls[-1] = f"ssl.ca.location={files['other']}"
    (found,) = examined(broker.address, *tls, exit_code=5)
    assert "The TLS connection" in found["detail"]
    assert "ssl.ca.location" in found["fix"]


# ---------------------------------------------------------------- where brokers say that they are


@pytest.mark.parametrize(
    ("advertised", "said"),
    [
        ("nohost.invalid:9092", "that name leads nowhere from here"),
        ("127.0.0.1:1", "which lets nobody in from here (127.0.0.1: connection refused)"),
    ],
)
def test_a_broker_that_sends_clients_astray_is_found(tmp_path: Path, advertised: str, said: str) -> None:
    with RoughBroker(tmp_path, {"advertised.listeners": f"CLIENTS://{advertised}"}) as broker:
        (found,) = examined(broker.address, exit_code=1)
    assert found["check"] == "broker 1"
    assert f"Broker 1 tells clients to connect to {advertised}" in found["detail"]
    assert said in found["detail"]
    assert f"set advertised.listeners=CLIENTS://{broker.address}, and start" in found["fix"]
    assert "Clients on other machines need a name or address of this one" in found["fix"]


def test_a_broker_that_sends_clients_to_another_cluster_is_found(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    with RoughBroker(tmp_path, {"advertised.listeners": f"CLIENTS://{broker.address}"}) as astray:
        (found,) = examined(astray.address, exit_code=1)
    assert "where a node of another cluster answers" in found["detail"]


def advertised(
    host: str,
    outcome: Outcome,
    *,
    port: int = 9092,
    is_loopback: bool = False,
    is_same_cluster: bool | None = None,
    answers: int | None = 7,
    listeners: Mapping[str, str] = MappingProxyType({}),
) -> Finding:
    """What is found of broker 7."""
    way_in = WayIn(HERE, is_loopback, protocol="SSL", node_id=answers, advertised=listeners)
    return of_advertised(7, Place(host, port), outcome, way_in=way_in, is_same_cluster=is_same_cluster)


@pytest.mark.parametrize(
    ("host", "outcome", "status", "words"),
    [
        (
            "localhost",
            Unconnected({"127.0.0.1": REFUSED}),
            "problem",
            "on every machine is that machine itself",
        ),
        ("127.0.0.1", BROKER, "warning", "It works here only."),
        ("::1", Silent(), "problem", "on every machine"),
        ("0.0.0.0", BROKER, "problem", "no address to connect to"),
        ("3f4e5d6c7b8a", Unresolved("unknown"), "problem", "It looks like the id of a container."),
        ("kafka", Unresolved("unknown"), "problem", "leads nowhere from here: unknown."),
        ("172.17.0.2", Unconnected({"172.17.0.2": TIMED_OUT}), "problem", "(172.17.0.2: no answer)"),
        ("broker", CONTROLLER, "problem", "the port of a controller"),
        ("broker", WantsTls(), "problem", "speaks TLS"),
        ("broker", WantsPlaintext(), "problem", "speaks in plaintext"),
        ("broker", BROKER, "ok", "works from here"),
    ],
)
def test_what_is_wrong_with_an_advertised_address(
    host: str, outcome: Outcome, status: str, words: str
) -> None:
    found = advertised(host, outcome)
    assert found.status == status
    assert words in found.detail
    assert (found.fix is None) == (status == "ok")


def test_loopback_is_right_for_clients_on_the_same_machine() -> None:
    assert advertised("localhost", BROKER, is_loopback=True).status == "ok"
    assert advertised("localhost", BROKER, is_loopback=True, is_same_cluster=False).status == "problem"


@pytest.mark.parametrize(
    ("host", "port", "answers", "listeners", "value"),
    [
        # The broker that answers can be reached where it was.
        ("3f4e5d6c7b8a", 19092, 7, {}, "SSL://broker.example.org:9092 (with the name of its listener)"),
        ("kafka", 9092, 7, LISTENERS, "INSIDE://kafka:29092,OUTSIDE://broker.example.org:9092,"),
        ("kafka", 29092, 7, LISTENERS, "INSIDE://broker.example.org:9092,OUTSIDE://kafka:9092,"),
        # Left to its default, a listener is advertised by a name that the machine gives itself.
        ("3f4e5d6c7b8a", 9092, 7, {"CLIENTS": ":9092"}, "CLIENTS://broker.example.org:9092,"),
        # Where others can be reached nobody knows, nor where one can that is not always reached here.
        ("kafka", 9092, 8, LISTENERS, "SSL://HOST:PORT (the name of its listener"),
        ("kafka", 9092, None, {}, "SSL://HOST:PORT (the name of its listener"),
        ("broker.example.org", 9092, 7, {}, "SSL://HOST:PORT (the name of its listener"),
    ],
)
def test_what_a_broker_should_say_instead(
    host: str, port: int, answers: int | None, listeners: dict[str, str], value: str
) -> None:
    nobody = Unconnected({"10.0.0.1": REFUSED})
    found = advertised(host, nobody, port=port, answers=answers, listeners=listeners)
    assert f"set advertised.listeners={value}" in (found.fix or "")


def test_where_a_broker_says_that_it_is_stands_in_its_settings() -> None:
    listeners = {"listeners": "A://:1, B://0.0.0.0:2,C://:3", "controller.listener.names": "C,D"}
    assert advertised_listeners(listeners) == {"A": ":1", "B": "0.0.0.0:2"}
    assert advertised_listeners({**listeners, "advertised.listeners": "A://a:1"}) == {"A": "a:1"}
    assert advertised_listeners({"advertised.listeners": None}) == {}


# ---------------------------------------------------------------- what observations mean


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Unresolved("Name or service not known"), "leads nowhere"),
        (Unconnected({"10.0.0.1": REFUSED}), "start the broker"),
        (Unconnected({"10.0.0.1": TIMED_OUT}), "firewalls"),
        (Unconnected({"10.0.0.1": "network is unreachable"}), "Look at the network"),
        (Silent(), "says nothing"),
        (HangsUp(), "max.connections"),
        (Foreign(b"SSH-2.0-OpenSSH"), "an SSH server"),
        (Foreign(b"\x00\x01"), "Find the broker's port"),
        (WantsTls(), "security.protocol=SSL"),
        (WantsPlaintext(), "Leave security.protocol=SSL out"),
        (TlsFailed("tlsv13 alert certificate required"), "ssl.client.auth"),
        (TlsFailed("Hostname mismatch, certificate is not valid for 'x'."), "subjectAltName"),
        (TlsFailed("certificate has expired"), "renewed"),
        (TlsFailed("self-signed certificate in certificate chain"), "ssl.ca.location"),
        (CONTROLLER, "port of a controller"),
    ],
)
def test_why_a_client_gets_no_answer(outcome: Outcome, words: str) -> None:
    found = of_bootstrap(HERE, outcome)
    assert found.status == "problem"
    assert words in f"{found.detail} {found.fix}"


def test_an_address_that_only_some_clients_find_is_a_warning() -> None:
    found = of_bootstrap(Place("localhost", 9092), Answers(BROKER.apis, "127.0.0.1", {"::1": REFUSED}, 1.0))
    assert found.status == "warning"
    assert "Write 127.0.0.1:9092" in (found.fix or "")


@pytest.mark.parametrize(
    ("difference_ms", "status", "words"),
    [
        (3, "ok", "agree"),
        (-4_000, "ok", "agree"),
        (60_000, "warning", "60 s ahead of this machine's"),
        (-60_000, "warning", "60 s behind this machine's"),
        (7_200_000, "problem", "ahead"),
    ],
)
def test_clocks_that_differ(difference_ms: int, status: str, words: str) -> None:
    found = of_clock(difference_ms, 10)
    assert found.status == status
    assert words in found.detail


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert of_clock(20_000, 19_000).status == "ok"


def test_topics_that_cannot_be_created() -> None:
    assert of_creation(None, "").status == "ok"
    found = of_creation("INVALID_REPLICATION_FACTOR", "Unable to replicate the partition 3 time(s).")
    assert found.status == "problem"
    assert "default.replication.factor" in (found.fix or "")
    assert of_creation("UNKNOWN_SERVER_ERROR", "?").fix is not None


def test_internal_topics_that_cannot_be_created() -> None:
    assert of_internal_topics({"offsets.topic.replication.factor": 1}, 1).status == "ok"
    found = of_internal_topics({"offsets.topic.replication.factor": 3}, 1)
    assert "offsets.topic.replication.factor=3" in found.detail
    assert found.detail.endswith("So there cannot be consumer groups.")
    assert "set this to 1" in (found.fix or "")
    assert of_internal_topics({"transaction.state.log.replication.factor": 3}, 1).status == "warning"


def test_too_few_brokers_for_what_was_asked_are_found(tmp_path: Path) -> None:
    settings = {"default.replication.factor": "3", "offsets.topic.replication.factor": "3"}
    with RoughBroker(tmp_path, settings) as broker:
        found = examined(broker.address, exit_code=1)
    assert [row["check"] for row in found] == ["creating topics", "internal topics"]


def test_the_slow_twin_is_a_warning() -> None:
    assert of_kernel("compiled", "record kernel").status == "ok"
    found = of_kernel("pure", "record kernel")
    assert found.section == "installation"
    assert "C compiler" in (found.fix or "")


# ---------------------------------------------------------------- bytes


def test_a_reply_is_known_by_its_number() -> None:
    number = b"Mold"
    assert bytes_missing(b"") == 8
    assert bytes_missing(b"\0\0\0\x0a" + number) == 6
    assert bytes_missing(b"\0\0\0\x0a" + number + bytes(6)) == 0
    assert bytes_missing(b"HTTP/1.1 400") <= 0
    assert bytes_missing(b"\x7f\xff\xff\xff" + number) == 0
    assert read_versions(b"HTTP/1.1 400") is None
    assert read_versions(b"\0\0\0\x06" + number + b"\0\0") is None
    versions = bytes.fromhex("0000 00000001 0003 0000 000d")
    assert read_versions(b"\0\0\0\x10" + number + versions) == {3: (0, 13)}
