"""How a member in Python tells what happens to it, and hears that it shall leave."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any


def settings() -> dict[str, Any]:
    """What the member was started with."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def tell(event: str, partitions: Iterable[int]) -> None:
    """Partitions were assigned, revoked or lost."""
    _write({"event": event, "partitions": sorted(partitions)})


def tell_read(partition: int, offset: int) -> None:
    """A record was processed."""
    _write({"event": "read", "partition": partition, "offset": offset})


def tell_committed(offsets: Mapping[int, int]) -> None:
    """The coordinator has taken the offsets, by partition, that the group goes on from."""
    _write({"event": "committed", "offsets": {str(each): offset for each, offset in offsets.items()}})


def asked_to_leave() -> threading.Event:
    """Set when the input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _write(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"at": int(time.time() * 1000), **event}) + "\n")
    sys.stdout.flush()
