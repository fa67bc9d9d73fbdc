"""What a node tells is one line an event, whatever a peer puts into it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from moldau.node.logs import LIMITED_KEYS_MAX, LinesForPeople, LinesOfJson, configure, get_logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _root_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def told(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_people_read_lines_on_a_terminal() -> None:
    configure(stream := Terminal())
    get_logger("moldau.node.quorum").info("leader elected", epoch=3, votes=[1, 2], why="it had to be")
    (line,) = told(stream)
    assert line.endswith(' INFO    node.quorum: leader elected epoch=3 votes="[1, 2]" why="it had to be"')


def test_a_terminal_shows_what_matters_in_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    configure(stream := Terminal())
    log = get_logger("moldau.node.quorum")
    log.info("as usual")
    log.warning("peer lost", peer="\x1b[31m")
    usual, unusual = told(stream)
    assert usual.endswith("\x1b[2mINFO   \x1b[0m node.quorum: as usual")
    assert unusual.endswith("\x1b[33mWARNING\x1b[0m node.quorum: peer lost peer=\\x1b[31m")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv(name, value)
    configure(stream := Terminal())
    get_logger("moldau.x").error("bad")
    assert stream.getvalue()[:-1].isprintable()


def test_programs_read_json_elsewhere() -> None:
    configure(stream := io.StringIO())
    get_logger("moldau.node.quorum").warning(
        "peer lost", peer=("b", 9093), error=ValueError("100%"), event="x", is_known=True
    )
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "moldau.node.quorum",
        "event": "peer lost",
        "peer": ["b", 9093],
        "error": "100%",
        "is_known": True,
    }


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "json"])
def test_control_characters_of_peers_reach_nobodys_terminal(stream: io.StringIO) -> None:
    configure(stream)
    nasty = "a\nb\x1b[2J\x9b\u202e\u2028"
    get_logger("moldau.x").error(f"bad {nasty}", client_id=nasty)
    assert len(told(stream)) == 1
    assert stream.getvalue()[:-1].isprintable()
    assert "\\x1b[2J" in stream.getvalue() or "\\u001b[2J" in stream.getvalue()


@pytest.mark.parametrize("lines", [LinesForPeople(), LinesOfJson()])
def test_what_libraries_log_keeps_its_traceback(lines: logging.Formatter) -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        info = (RuntimeError, error, error.__traceback__)
    record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 1, "task %s failed", ("t1",), info)
    text = lines.format(record)
    assert "task t1 failed" in text
    assert "RuntimeError: broken" in text


def test_debugging_is_silent_unless_it_is_wanted() -> None:
    configure(stream := io.StringIO())
    get_logger("moldau.x").debug("detail")
    assert told(stream) == []
    configure(stream, level=logging.DEBUG)
    get_logger("moldau.x").debug("detail")
    assert len(told(stream)) == 1


def test_what_a_peer_can_cause_is_told_once_in_a_while() -> None:
    configure(stream := io.StringIO())
    log = get_logger("moldau.x")

    def at(now_ms: int, key: str = "a") -> list[dict[str, object]]:
        stream.seek(0)
        stream.truncate()
        log.limited("bad request", key=key, now_ms=now_ms, every_ms=1_000, host="h")
        return [json.loads(line) for line in told(stream)]

    assert [line["event"] for line in at(5_000)] == ["bad request"]
    assert at(5_001) == []
    assert at(5_999) == []
    assert len(at(5_999, key="b")) == 1
    assert at(6_000)[0]["left_out"] == 2
    assert "left_out" not in at(7_000)[0]
    assert len(at(10)) == 1, "a clock that went back is another clock"


def test_ever_new_keys_do_not_fill_the_memory() -> None:
    configure(io.StringIO())
    log = get_logger("moldau.x")
    for key in range(2 * LIMITED_KEYS_MAX):
        log.limited("bad request", key=key, now_ms=0)
    assert len(log._told) == LIMITED_KEYS_MAX
