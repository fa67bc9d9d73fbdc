"""Just enough HTTP to answer a question: one GET or HEAD a connection, from bytes to bytes."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX: Final = 8 * 1024

TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_METHODS: Final = ("GET", "HEAD")
_END: Final = b"\r\n\r\n"

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_BEGINNING: Final = re.compile(_TOKEN.encode())
_REQUEST_LINE: Final = re.compile(rf"({_TOKEN}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_FIELD: Final = re.compile(rf"({_TOKEN}):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{1,5})?")
# What names a machine without asking anybody, so that nobody can have answered with ours instead of his.
_IP_ADDRESS: Final = re.compile(r"\[.*\]|[0-9]{1,3}(\.[0-9]{1,3}){3}")


@dataclass(frozen=True, slots=True)
class Question:
    """What a request wants to know."""

    path: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What it is told."""

    status: int
    text: str
    content_type: str = TEXT

    def encode(self, *, is_head: bool = False) -> bytes:
        """The whole response; whoever asked for its head only gets no more."""
        body = self.text.encode()
        head = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if self.status == 405:
            head.append(f"Allow: {', '.join(_METHODS)}")
        return "\r\n".join([*head, "", ""]).encode() + (b"" if is_head else body)


class Asking:
    """A connection until its question is known; everything is refused that only a tunnel or a body needs.

    A page in somebody's browser can be made to send requests here under a name that its author has let point
    to this machine. So only those are heard who name it as it is called, or by an address.
    """

    __slots__ = ("_head", "_hosts")

    def __init__(self, hosts: Container[str]) -> None:
        self._hosts = hosts
        self._head = b""

    def received(self, data: bytes) -> Question | Reply | None:
        """What is asked, or the reply to what cannot be; None while there is more to come."""
        self._head += data
        if not _BEGINNING.match(self._head):
            # Kafka's protocol or TLS, say, which would wait for an answer as we for the end of the head.
            return _refusal(400, "This is no request of HTTP.")
        head, end, _ = self._head.partition(_END)
        if len(head) > HEAD_BYTES_MAX:
            return _refusal(431, f"A request may have {HEAD_BYTES_MAX} bytes before its end.")
        return self._question(head.decode("latin-1")) if end else None

    def _question(self, head: str) -> Question | Reply:
        first, *lines = head.split("\r\n")
        line = _REQUEST_LINE.fullmatch(first)
        if line is None:
            return _refusal(400, "This is no request of HTTP.")
        method, target, major, minor = line.groups()
        if major != "1":
            return _refusal(505, "HTTP/1.1 is spoken here.")
        fields: dict[str, str] = {}
        for each in lines:
            field = _FIELD.fullmatch(each)
            if field is None or (field[1].lower() == "host" and "host" in fields):
                return _refusal(400, "This is no request of HTTP.")
            fields[field[1].lower()] = field[2]
        if method not in _METHODS:
            return _refusal(405, "Nothing can be changed here.")
        if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
            return _refusal(413, "A question has no body.")
        if not self._is_meant(fields.get("host"), may_be_absent=minor == "0"):
            return _refusal(421, "The request is for another host: ask by address, or as localhost.")
        if not target.startswith("/"):
            return _refusal(400, "This is no proxy.")
        return Question(target.partition("?")[0], is_head=method == "HEAD")

    def _is_meant(self, host: str | None, *, may_be_absent: bool) -> bool:
        if host is None:
            # No browser is so old, and some that watch over servers are.
            return may_be_absent
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        return name == "localhost" or name in self._hosts or _IP_ADDRESS.fullmatch(name) is not None


def _refusal(status: int, text: str) -> Reply:
    return Reply(status, f"{text}\n")
