"""One question a connection: what is understood, what is refused, whatever the bytes come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.node.http import HEAD_BYTES_MAX, Asking, Question, Reply

GOOD = b"GET /metrics?x=1 HTTP/1.1\r\nHost: broker-1:9644\r\nAccept: text/plain\r\n\r\n"


def asked(data: bytes, hosts: tuple[str, ...] = ("broker-1",)) -> Question | Reply | None:
    return Asking(hosts).received(data)


def status(data: bytes) -> int:
    reply = asked(data)
    assert isinstance(reply, Reply), reply
    return reply.status


@given(st.lists(st.integers(1, 20)))
def test_a_question_is_understood_in_whatever_pieces_it_comes(sizes: list[int]) -> None:
    asking, rest, answers = Asking(("broker-1",)), GOOD, []
    for size in [*sizes, len(GOOD)]:
        piece, rest = rest[:size], rest[size:]
        if piece:
            answers.append(asking.received(piece))
    assert answers == [None] * (len(answers) - 1) + [Question("/metrics", is_head=False)]


def test_a_head_is_told_from_a_whole() -> None:
    assert asked(GOOD.replace(b"GET", b"HEAD")) == Question("/metrics", is_head=True)
    reply = Reply(200, "straße\n")
    head, _, body = reply.encode().partition(b"\r\n\r\n")
    assert reply.encode(is_head=True) == head + b"\r\n\r\n"
    assert body == "straße\n".encode()
    assert b"Content-Length: 8" in head.split(b"\r\n")
    assert b"Connection: close" in head.split(b"\r\n")


@pytest.mark.parametrize(
    "host",
    ["broker-1", "BROKER-1:80", "localhost", "LocalHost:9644", "127.0.0.1:9644", "10.1.2.3", "[::1]:9644"],
)
def test_those_are_heard_who_name_this_machine(host: str) -> None:
    assert isinstance(asked(GOOD.replace(b"broker-1:9644", host.encode())), Question)


@pytest.mark.parametrize(
    "host", ["evil.example", "broker-1.evil.example", "127.0.0.1.evil.example", "", "a b", "[evil]", "1.2.3"]
)
def test_those_are_not_heard_who_name_another(host: str) -> None:
    assert status(GOOD.replace(b"broker-1:9644", host.encode())) == 421


def test_only_the_oldest_need_not_name_any() -> None:
    assert asked(b"GET /livez HTTP/1.0\r\n\r\n") == Question("/livez", is_head=False)
    assert status(b"GET /livez HTTP/1.1\r\n\r\n") == 421


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"get"])
def test_nothing_can_be_changed(method: bytes) -> None:
    data = GOOD.replace(b"GET", method)
    assert status(data) == 405
    reply = asked(data)
    assert isinstance(reply, Reply)
    assert b"\r\nAllow: GET, HEAD\r\n" in reply.encode()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (GOOD.replace(b"/metrics", b"http://x/metrics"), 400),
        (GOOD.replace(b"Accept: text/plain", b"Host: localhost"), 400),
        (GOOD.replace(b"Accept: text/plain", b" folded"), 400),
        (GOOD.replace(b"Accept: ", b"Accept : "), 400),
        (GOOD.replace(b"text/plain", b"a\nX: b"), 400),
        (GOOD.replace(b"text/plain", b"a\0b"), 400),
        (GOOD.replace(b"Accept: text/plain", b"Content-Length: 5"), 413),
        (GOOD.replace(b"Accept: text/plain", b"Transfer-Encoding: chunked"), 413),
        (GOOD.replace(b"HTTP/1.1", b"HTTP/2.0"), 505),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        # Whoever speaks another protocol is told so at once, and does not wait for the other side to begin.
        (b"\x16\x03\x01\x02", 400),
        (b"\0\0\0\x18\0\x12\0\0", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_wrong_is_refused(data: bytes, code: int) -> None:
    assert status(data) == code


def test_a_request_without_an_end_is_not_kept_for_ever() -> None:
    asking = Asking(())
    assert asking.received(b"x" * HEAD_BYTES_MAX) is None
    reply = asking.received(b"x")
    assert isinstance(reply, Reply)
    assert reply.status == 431


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    assert not isinstance(asked(data + b"\r\n\r\n"), Question)
