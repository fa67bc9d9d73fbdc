"""What several flushes come to when they are done together; both worlds share this."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.world.paths import directory_of
from moldau.world.ports import Flush


def merged(requests: Iterable[Flush]) -> Flush:
    """All of `requests` as one; renames keep the order in which they were asked for."""
    requests = tuple(requests)
    files = {id(file): file for request in requests for file in request.files}
    renames = tuple(rename for request in requests for rename in request.renames)
    directories = dict.fromkeys(directory for request in requests for directory in request.directories)
    return Flush(files=tuple(files.values()), renames=renames, directories=tuple(directories))


def directories_of(work: Flush) -> tuple[str, ...]:
    """The directories whose entries `work` makes durable: those it names, and those of its renames."""
    renamed = (directory_of(path) for rename in work.renames for path in rename)
    return tuple(dict.fromkeys((*renamed, *work.directories)))
