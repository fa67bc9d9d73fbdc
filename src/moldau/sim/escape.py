"""While a simulation runs, calls that would reach the real machine raise instead of answering.

This is a net, not a proof: a name imported from its module before the run (`from time import monotonic`)
slips through. That equal seeds give equal digests in two processes shows the rest.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class EscapedTheWorld(BaseException):
    """Code under simulation asked the real machine for something; not an Exception, so nothing answers it."""


# Where each call lives, by the name that a reader of the message knows it by.
ESCAPES: tuple[tuple[object, str, tuple[str, ...]], ...] = (
    (
        time,
        "time",
        ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
    ),
    (
        random,
        "random",
        (
            *("random", "randrange", "randint", "randbytes", "getrandbits", "choice", "choices", "sample"),
            *("shuffle", "uniform", "gauss", "expovariate", "seed"),
        ),
    ),
    (
        secrets,
        "secrets",
        ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice"),
    ),
    (uuid, "uuid", ("uuid1", "uuid4")),
    (builtins, "", ("open", "input")),
    (io, "io", ("open",)),
    (
        os,
        "os",
        (
            *("urandom", "getrandom", "open", "mkdir", "makedirs", "rename", "replace", "remove", "unlink"),
            *("rmdir", "listdir", "scandir", "truncate", "link", "symlink", "fork", "system", "getpid"),
        ),
    ),
    (socket.socket, "socket.socket", ("__init__",)),
    (socket, "socket", ("getaddrinfo", "create_connection", "create_server", "gethostname")),
    (threading.Thread, "threading.Thread", ("start",)),
    (subprocess.Popen, "subprocess.Popen", ("__init__",)),
)

# Logging stamps its records with the real time, which no node ever sees.
EXEMPT_CALLERS = ("logging",)


@contextmanager
def sealed() -> Iterator[None]:
    """A block in which this thread cannot reach the machine; inside another such block it changes nothing."""
    if getattr(time.time, "is_sealed", False):
        yield
        return
    replaced: list[tuple[object, str, object]] = []
    try:
        for owner, prefix, names in ESCAPES:
            for name in names:
                original = getattr(owner, name, None)
                if original is not None:
                    shown = prefix if name == "__init__" else f"{prefix}.{name}".lstrip(".")
                    replaced.append((owner, name, original))
                    setattr(owner, name, _refusal(shown, original))
        yield
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


def _refusal(shown: str, original: Callable[..., object]) -> Callable[..., object]:
    """What stands in for a call: it raises for the simulation's thread and lets all others through."""
    simulating = threading.get_ident()

    def refuse(*args: object, **kwargs: object) -> object:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if threading.get_ident() != simulating or caller.partition(".")[0] in EXEMPT_CALLERS:
            return original(*args, **kwargs)
        raise EscapedTheWorld(
            f"{shown}() was called by {caller} inside a simulation: go through the world's ports"
        )

    refuse.is_sealed = True  # type: ignore[attr-defined]
    return refuse


# What an asyncio loop can do besides running callbacks; none of it exists in a simulation.
LOOP_ESCAPES = tuple(
    sorted(
        {name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")}
        - {
            "call_at",
            "call_exception_handler",
            "call_later",
            "call_soon",
            "close",
            "create_future",
            "create_task",
        }
        - {"default_exception_handler", "get_debug", "get_exception_handler", "get_task_factory", "is_closed"}
        - {
            "is_running",
            "run_forever",
            "run_until_complete",
            "set_debug",
            "shutdown_asyncgens",
            "stop",
            "time",
        }
        - {"shutdown_default_executor"}
    )
)


def loop_refusal(name: str) -> Callable[..., object]:
    """What stands in for a method of the loop that a simulation does not have."""

    def refuse(self: object, *args: object, **kwargs: object) -> object:
        raise EscapedTheWorld(f"loop.{name}() was called inside a simulation: go through the world's ports")

    return refuse
