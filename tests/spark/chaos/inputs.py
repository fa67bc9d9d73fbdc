"""What is sent into the pipelines: numbered records, none of which can be taken for another."""

from __future__ import annotations

import json
from zlib import crc32

KEYS = 40


def key_of(number: int) -> str:
    """Inputs take turns at the keys."""
    return f"key-{number % KEYS}"


def text_of(number: int) -> str:
    """Some text that belongs to this number only."""
    return f"{crc32(b'%d' % number):08x}" * 8


def value_of(number: int) -> str:
    """The value of an input, in JSON."""
    return json.dumps({"number": number, "text": text_of(number)})


def number_of(key: str | None, value: str | None) -> int | None:
    """Which input a record is; None if it is none."""
    try:
        told = json.loads(value or "")
        number = told["number"]
    except (ValueError, TypeError, KeyError):
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        return None
    return number if (key, value) == (key_of(number), value_of(number)) else None
