"""The admin port of a broker in a simulated world: how it is asked, and whom it sends away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.broker import HOST, Broker, OtherBroker, batch
from prometheus_client.parser import text_string_to_metric_families

from moldau.node.admin import ASK_MS_MAX, CONNECTIONS_MAX, READ_MS_MAX
from moldau.world.ports import Address, Connection, ConnectionLost

ADMIN = Address(HOST, 9644)
SETTINGS = {"moldau.admin.listener": str(ADMIN)}
REQUEST = f"GET /readyz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


class Visitor:
    """Somebody who is connected to the admin port; it implements the Receiver port."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.data = b""
        self.is_closed = False
        self.connection: Connection | None = None
        self._buffer = bytearray(64 * 1024)
        endpoint = broker.sim.network.endpoint("visitor")
        self.connecting = broker.sim.loop.create_task(endpoint.connect(ADMIN, self))

    def send(self, data: bytes) -> None:
        self.broker.run_until(self.connecting.done)
        self.connecting.result()
        assert self.connection is not None
        self.connection.send([data])

    def until_closed(self, *, timeout_ms: int = 60_000) -> bytes:
        self.broker.run_until(lambda: self.is_closed, timeout_ms=timeout_ms)
        return self.data

    def connected(self, connection: Connection) -> None:
        self.connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        return memoryview(self._buffer)

    def filled(self, count: int) -> None:
        self.data += self._buffer[:count]

    def pause_sending(self) -> None: ...

    def resume_sending(self) -> None: ...

    def disconnected(self, error: Exception | None) -> None:
        self.is_closed = True


def ask(broker: Broker, path: str, *, method: str = "GET", host: str = HOST) -> tuple[int, str]:
    """The status and the text of a page."""
    visitor = Visitor(broker)
    visitor.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = visitor.until_closed().partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as made:
        yield made


def test_a_client_that_takes_it_for_the_port_of_a_broker_is_told_at_once(broker: Broker) -> None:
    visitor = Visitor(broker)
    visitor.send(b"\0\0\0\x18\0\x12\0\0\0\0\0\1")
    assert visitor.until_closed(timeout_ms=1000).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.honours("moldau.admin.listener")
def test_there_is_an_admin_port_where_one_is_wanted_and_nowhere_else(broker: Broker) -> None:
    assert ask(broker, "/livez") == (200, "ok\n")
    assert ask(broker, "/readyz") == (200, "ok\n")
    assert broker.node.admin_address == ADMIN
    with Broker() as other:
        assert other.node.admin_address is None
        with pytest.raises(ConnectionLost):
            Visitor(other).send(b"")


def test_the_head_of_a_page_has_no_text(broker: Broker) -> None:
    assert ask(broker, "/readyz", method="HEAD") == (200, "")


def test_what_is_not_there_and_what_is_not_allowed_is_said_so(broker: Broker) -> None:
    assert ask(broker, "/") == (404, "There are /livez, /readyz, /metrics, /groups/NAME.\n")
    assert ask(broker, "/livez", method="POST")[0] == 405
    assert ask(broker, "/livez", host="evil.example")[0] == 421


def test_a_broker_is_not_ready_before_clients_are_served(broker: Broker) -> None:
    broker.stop()
    broker.begin()
    broker.run_until(lambda: broker.node.admin_address is not None)
    answers = [ask(broker, "/readyz")]
    while answers[-1][0] != 200:
        answers.append(ask(broker, "/readyz"))
    assert answers[0] == (503, "the node is starting\n")
    assert answers[-1] == (200, "ok\n")


def test_a_broker_is_not_ready_while_it_leaves() -> None:
    # With a slow disk it takes a while to be let go.
    with Broker(SETTINGS, flush_ms=(40, 50)) as broker:
        visitor = Visitor(broker)
        visitor.send(REQUEST[:10])
        broker.run_for(10)
        broker.tell_to_stop()
        visitor.send(REQUEST[10:])
        assert visitor.until_closed().endswith(b"\r\n\r\nthe node is shutting down\n")
        broker.run_until(lambda: not broker.is_running)


def test_a_broker_that_is_fenced_is_alive_and_not_ready() -> None:
    # Its heartbeats are rarer than the controller likes.
    rare = {"broker.session.timeout.ms": "300", "broker.heartbeat.interval.ms": "2000"}
    with Broker(SETTINGS | rare, flush_ms=(20, 20)) as broker:
        answers = {ask(broker, "/readyz") for _ in range(2_000)}
        assert answers >= {(200, "ok\n"), (503, "the controller has fenced this broker\n")}
        assert ask(broker, "/livez") == (200, "ok\n")


def test_a_broker_that_hears_nothing_of_the_controller_is_not_ready(broker: Broker) -> None:
    # Its own controller is never silent, so between two heartbeats the last answer is made out to be old.
    broker.run_for(500)
    broker.node.registration.heard_ms -= 10_000
    status, text = ask(broker, "/readyz")
    assert (status, text[:35]) == (503, "the controller has not answered for")
    broker.run_for(2_000)
    assert ask(broker, "/readyz") == (200, "ok\n")


def test_whoever_does_not_ask_is_sent_away(broker: Broker) -> None:
    visitor = Visitor(broker)
    visitor.send(REQUEST[:-1])
    broker.run_for(ASK_MS_MAX - 1_000)
    assert not visitor.is_closed
    assert visitor.until_closed(timeout_ms=3_000) == b""


def test_whoever_does_not_read_is_sent_away(broker: Broker) -> None:
    visitor = Visitor(broker)
    visitor.send(b"")
    assert visitor.connection is not None
    many = [({"number": str(number)}, float(number)) for number in range(100_000)]
    broker.node.metrics.gauges_read("moldau_numbers", "More than fits on the way.", lambda: many)
    visitor.connection.pause_reading()
    visitor.send(REQUEST.replace(b"/readyz", b"/metrics"))
    broker.run_for(READ_MS_MAX + 3_000)
    visitor.connection.resume_reading()
    assert b"99999" not in visitor.until_closed()


def test_there_are_not_too_many_at_once(broker: Broker) -> None:
    first, *others = [Visitor(broker) for _ in range(CONNECTIONS_MAX)]
    broker.run_until(lambda: all(visitor.connecting.done() for visitor in (first, *others)))
    refused = Visitor(broker)
    broker.run_until(lambda: refused.is_closed or refused.connecting.done())
    broker.run_until(lambda: refused.is_closed or refused.connecting.exception() is not None)
    assert not any(visitor.is_closed for visitor in (first, *others))
    first.send(REQUEST)
    assert b"200 OK" in first.until_closed()
    assert ask(broker, "/readyz")[0] == 200


def test_a_page_that_cannot_be_made_is_a_mistake_of_ours_and_stops_the_node(broker: Broker) -> None:
    def fails() -> float:
        raise ZeroDivisionError("a mistake")

    broker.node.metrics.gauge_read("moldau_mistake", "A mistake.", fails)
    visitor = Visitor(broker)
    visitor.send(REQUEST.replace(b"/readyz", b"/metrics"))
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        broker.run_until(lambda: not broker.is_running)


# ---------------------------------------------------------------- metrics


def test_the_metrics_can_be_read_and_count_what_has_happened(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.append([b"a", b"b", b"c"], "orders", partition=1)
    status, text = ask(broker, "/metrics")
    assert status == 200
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    of_orders = ("partition", "1"), ("topic", "orders")
    assert samples["moldau_log_end_offset", *of_orders] == 3
    assert samples["moldau_high_watermark", *of_orders] == 3
    assert samples["moldau_log_start_offset", *of_orders] == 0
    assert samples["moldau_log_bytes", *of_orders] > 0
    assert samples["moldau_requests_total", ("api", "Produce")] == 1
    assert samples["moldau_request_seconds_count", ("api", "Produce")] == 1
    # What the controller answers is counted where the client asked.
    assert samples["moldau_requests_total", ("api", "CreateTopics")] == 1
    assert samples["moldau_response_bytes_total", ("api", "CreateTopics")] > 0
    for name, value in {
        "moldau_ready": 1,
        "moldau_active_controller": 1,
        "moldau_brokers_active": 1,
        "moldau_partitions": 2,
        "moldau_leaders": 2,
        "moldau_offline_partitions": 0,
        "moldau_under_replicated_partitions": 0,
        "moldau_accepts_records": 1,
    }.items():
        assert samples[name,] == value, name
    assert samples["moldau_connections",] >= 1
    assert samples["moldau_disk_free_bytes",] > 0


def test_errors_are_counted_by_their_names(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.produce(b"no batch", "orders")
    broker.produce(batch([b"a"]), "payments")
    samples = broker.node.metrics.snapshot()
    errors = {name: samples[name] for name in samples if name.startswith('moldau_errors_total{api="Produce"')}
    assert errors == {
        'moldau_errors_total{api="Produce",error="CORRUPT_MESSAGE"}': 1,
        'moldau_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}': 1,
    }


def test_partitions_without_enough_replicas_are_counted(broker: Broker) -> None:
    other = OtherBroker(broker)
    other.heartbeat()
    broker.create_topic("orders", brokers=(1, 2))
    broker.create_topic("lost", brokers=(2,))
    broker.run_until(lambda: number(broker, "moldau_under_replicated_partitions") == 1)
    broker.run_until(lambda: number(broker, "moldau_offline_partitions") == 1)
    assert number(broker, "moldau_brokers_active") == 1


def number(broker: Broker, name: str) -> float:
    return broker.node.metrics.snapshot()[name]
