"""What went wrong in a pipeline, in a line with the place in its files; the rest belongs in the log."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

_LETTERS_MAX: Final = 600

# What workers and the processes of Python data sources send: a traceback in the middle of Java's.
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
# The last line of a traceback: the class of the error, and what it says.
_ERROR: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_JAVA_CAUSE: Final = re.compile(r"^\s*(?:Caused by: )?(?P<name>(?:[a-z]\w*\.)+[A-Z]\w*)(?:: (?P<text>.*))?$")
_CALL: Final = re.compile(r"was called from\s+(?P<path>\S.*):(?P<line>\d+)")
_NOISE: Final = (
    re.compile(r"\s*SQLSTATE: \w+"),
    re.compile(r"Query \S* ?\[id = [^\]]*\] terminated with exception: "),
    re.compile(r"^\[STREAM_FAILED\] "),
    re.compile(r"^\((?:org|java|scala)\.[\w.$]+\) "),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pipeline ended."""

    reason: str
    # The file of the user's, and the line, if it can be told.
    path: Path | None = None
    line: int | None = None
    query: str | None = None

    def __str__(self) -> str:
        where = f"{self.path.name}, line {self.line}: " if self.path is not None else ""
        query = f"query {self.query!r}: " if self.query else ""
        return f"{where}{query}{self.reason}"


def explain(error: BaseException, root: Path, *, query: str | None = None) -> Failure:
    """The reason and the place of what a pipeline raised, or what one of its queries died of."""
    text = _message_of(error)
    remote = _remote_reason(text, root)
    if remote is not None:
        reason, place = remote
    else:
        reason, place = _java_reason(text) or type(error).__name__, None
        if not _is_of_spark(error):
            shown = _first_lines(text)
            name = type(error).__name__
            is_ours = type(error).__module__.startswith("moldau.")
            reason = shown if is_ours and shown else f"{name}: {shown}" if shown else name
    place = place or _place_in(error.__traceback__, root) or _place_of_call(text, root)
    path, line = place if place is not None else (None, None)
    return Failure(shorten(reason), path, line, query)


def full_text(error: BaseException) -> str:
    """All there is to know of it, for the log."""
    return "".join(traceback.format_exception(error)).rstrip() + "\n"


def shorten(text: str) -> str:
    """One line that a terminal can hold."""
    line = " ".join(text.split())
    for noise in _NOISE:
        line = noise.sub("", line)
    return line if len(line) <= _LETTERS_MAX else f"{line[:_LETTERS_MAX]}…"


# ---------------------------------------------------------------- what it says


def _message_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        return f"{java}"
    return str(error)


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j.", "grpc"))


def _remote_reason(text: str, root: Path) -> tuple[str, tuple[Path, int] | None] | None:
    """What a Python process of Spark's died of, if that is what happened: the end of the last traceback."""
    at = text.rfind(_TRACEBACK)
    if at < 0:
        return None
    lines = text[at:].splitlines()[1:]
    reason: list[str] = []
    for line in lines:
        if reason:
            # A message may have several lines, up to where Java goes on.
            if not line.strip() or line.lstrip().startswith(("at ", "Caused by:", "SQLSTATE")):
                break
            reason.append(line)
        elif line and not line[0].isspace() and _ERROR.match(line):
            reason.append(line)
    if not reason:
        return None
    match = _ERROR.match(reason[0])
    assert match is not None, "that is how the line was found"
    name = match["name"].rpartition(".")[2]
    said = " ".join([match["text"] or "", *reason[1:]]).strip()
    # Our own errors are sentences; of others the class tells more than the words.
    is_ours = match["name"].startswith(("moldau.", "pyspark."))
    shown = said if is_ours and said else f"{name}: {said}" if said else name
    return shown, _user_frame(text[at:], root)


def _java_reason(text: str) -> str:
    """The message of an error of Spark's own: up to the plan that it shows below."""
    first = _first_lines(text)
    causes = [match for line in text.splitlines() if (match := _JAVA_CAUSE.match(line)) is not None]
    if first.startswith("[") or not causes:
        return first
    last = causes[-1]
    return f"{last['name'].rpartition('.')[2]}: {last['text']}" if last["text"] else last["name"]


def _first_lines(text: str) -> str:
    """The first paragraph, without stack and plan."""
    kept: list[str] = []
    for line in text.strip().splitlines():
        stripped = line.strip()
        is_end = not stripped or stripped.startswith(("at ", "JVM stacktrace", "Driver stacktrace", "== SQL"))
        if kept and (is_end or re.match(r"^['+:!]|^\+-|^=+ ", stripped)):
            break
        kept.append(stripped.rstrip(";"))
    return " ".join(kept)


# ---------------------------------------------------------------- where


def _user_frame(text: str, root: Path) -> tuple[Path, int] | None:
    frames = [
        (Path(match["path"]), int(match["line"]))
        for match in _FRAME.finditer(text)
        if _is_users(Path(match["path"]), root)
    ]
    return frames[-1] if frames else None


def _place_in(trace: TracebackType | None, root: Path) -> tuple[Path, int] | None:
    found = None
    for frame, line in traceback.walk_tb(trace):
        path = Path(frame.f_code.co_filename)
        if _is_users(path, root):
            found = (path, line)
    return found


def _place_of_call(text: str, root: Path) -> tuple[Path, int] | None:
    """The line of the user's that Spark remembers for a part of a plan."""
    for match in _CALL.finditer(text):
        if _is_users(Path(match["path"]), root):
            return Path(match["path"]), int(match["line"])
    return None


def _is_users(path: Path, root: Path) -> bool:
    """Whether a file is of the pipeline and not of a library, which may lie in an environment beside it."""
    return path.is_relative_to(root) and not {"site-packages", ".venv", "dist-packages"} & set(path.parts)
