"""One client for each cluster in a Python process, kept from task to task.

Spark reuses its Python workers. A client that lives as long as its worker spares every task of every
micro-batch a connection and a look at the metadata.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping
from typing import Final

from moldau.client import Unreachable, connect_sync
from moldau.client.blocking import BlockingClient
from moldau.client.settings import SettingValue
from moldau.spark.errors import NoBroker
from moldau.spark.options import BOOTSTRAP_SERVERS

Key = tuple[int, str, tuple[tuple[str, SettingValue], ...]]

_RETRY_INTERVAL_S: Final = 0.5

_clients: Final[dict[Key, BlockingClient]] = {}
_lock = threading.Lock()


def shared_client(
    servers: str, settings: Mapping[str, SettingValue], *, patience_s: float = 0.0
) -> BlockingClient:
    """This process's client of a cluster; NoBroker if none of its brokers answers within `patience_s`."""
    # A client's thread does not survive a fork, so a copied process makes a client of its own.
    key = (os.getpid(), servers, tuple(sorted(settings.items())))
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = _connect(servers, settings, time.monotonic() + patience_s)
        return client


def _connect(servers: str, settings: Mapping[str, SettingValue], deadline_s: float) -> BlockingClient:
    while True:
        try:
            return connect_sync(servers, **settings)
        except Unreachable as error:
            if time.monotonic() + _RETRY_INTERVAL_S > deadline_s:
                raise NoBroker(
                    f"{error.message} Check that the brokers run and that option {BOOTSTRAP_SERVERS}"
                    f" ({servers!r}) is right."
                ) from None
        time.sleep(_RETRY_INTERVAL_S)


@atexit.register
def _close_all() -> None:
    for (pid, *_), client in _clients.items():
        if pid == os.getpid():
            client.close()
