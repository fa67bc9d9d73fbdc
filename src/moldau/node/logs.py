"""What a node tells its operator: events with their facts, as lines to read or as lines of JSON."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Final, TextIO

# Whoever sends a node nonsense under ever new names must not fill its memory.
LIMITED_KEYS_MAX: Final = 1024
LIMITED_EVERY_MS: Final = 60_000

_FACTS: Final = "moldau_facts"

# What a terminal is told: only what one looks for has a colour.
_PLAIN: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_COLOURS: Final = {
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[31m",
}


class Logger:
    """Says what happened, with the facts as keywords: `log.info("leader elected", epoch=3)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        # When each event was last told, and how often it has been left out since; the oldest come first.
        self._told: dict[tuple[str, object], tuple[int, int]] = {}

    def debug(self, event: str, /, **facts: object) -> None:
        """For whoever looks for a bug."""
        self._log(logging.DEBUG, event, facts)

    def info(self, event: str, /, **facts: object) -> None:
        """What an operator would tell a colleague."""
        self._log(logging.INFO, event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        """What an operator should look at some time."""
        self._log(logging.WARNING, event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        """What an operator should look at now."""
        self._log(logging.ERROR, event, facts)

    def limited(
        self, event: str, /, *, key: object, now_ms: int, every_ms: int = LIMITED_EVERY_MS, **facts: object
    ) -> None:
        """A warning of what a peer can cause as often as it likes: once per event and key in `every_ms`."""
        told_ms, left_out = self._told.pop((event, key), (None, 0))
        # A clock that is behind what was told is another clock, as after a restart in a simulation.
        if told_ms is not None and 0 <= now_ms - told_ms < every_ms:
            self._told[event, key] = told_ms, left_out + 1
            return
        self._told[event, key] = now_ms, 0
        if len(self._told) > LIMITED_KEYS_MAX:
            del self._told[next(iter(self._told))]
        self.warning(event, **(facts | {"left_out": left_out} if left_out else facts))

    def _log(self, level: int, event: str, facts: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            # The event is an argument, because a message may have percent signs that mean something.
            self._logger.log(level, "%s", event, extra={_FACTS: facts})


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name)


def configure(stream: TextIO, *, level: int = logging.INFO) -> None:
    """Send everything that this process logs to a stream: for people on a terminal, as JSON elsewhere."""
    handler = logging.StreamHandler(stream)
    is_coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler.setFormatter(LinesForPeople(is_coloured=is_coloured) if stream.isatty() else LinesOfJson())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class LinesForPeople(logging.Formatter):
    """`2026-01-31 12:00:00.000 INFO  node.quorum: leader elected epoch=3`, in the machine's own time."""

    def __init__(self, *, is_coloured: bool = False) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        facts = "".join(f" {name}={_fact_for_people(fact)}" for name, fact in _facts_of(record).items())
        name = record.name.removeprefix("moldau.")
        when, level = f"{moment}.{int(record.msecs):03}", f"{record.levelname:<7}"
        line = _printable(f"{name}: {record.getMessage()}{facts}")
        traceback = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        if self._is_coloured:
            when, level = f"{_DIM}{when}{_PLAIN}", f"{_COLOURS.get(record.levelno, _DIM)}{level}{_PLAIN}"
        return f"{when} {level} {line}{_printable(traceback, keeps_lines=True)}"


class LinesOfJson(logging.Formatter):
    """One object a line: time, level, logger and event, and then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """One line whatever happens: what is no JSON becomes text."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        # A fact never takes the place of what every line has.
        line |= {name: _fact_for_json(fact) for name, fact in _facts_of(record).items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _facts_of(record: logging.LogRecord) -> dict[str, object]:
    return dict(getattr(record, _FACTS, {}))


def _fact_for_people(fact: object) -> str:
    text = str(fact)
    return json.dumps(text, ensure_ascii=False) if not text or any(char in text for char in ' "=') else text


def _fact_for_json(fact: object) -> object:
    if fact is None or isinstance(fact, bool | int | float | str):
        return fact
    return [_fact_for_json(each) for each in fact] if isinstance(fact, list | tuple) else str(fact)


def _printable(text: str, *, keeps_lines: bool = False) -> str:
    """The text with everything escaped that would move a terminal's cursor, or look like another line."""
    return "".join(
        char if char.isprintable() or (keeps_lines and char == "\n") else ascii(char)[1:-1] for char in text
    )
