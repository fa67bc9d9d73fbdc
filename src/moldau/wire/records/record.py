"""The values that the kernel and its pure twin take and return: records, and what a walk over them found."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple

from moldau.model.errors import MalformedMessage
from moldau.wire.records.header import Buffer

Headers = tuple[tuple[str, bytes | None], ...]

Run = tuple[Buffer, int, int, int, int | None]
"""The records of one batch: payload, count, base offset, base timestamp, log-append time if it has one."""
Strings = tuple[int, Buffer | None, Buffer, Buffer | None]
"""An Arrow column of byte strings: first row, validity bitmap, int32 offsets, data."""
HeaderColumn = tuple[int, Buffer | None, Buffer, int, Strings, Strings]
"""An Arrow list column: first row, validity bitmap, int32 offsets; count, keys and values of all headers."""


class Record(NamedTuple):
    """One record as a consumer sees it, or as a producer gives it (then `offset` counts from 0)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    attributes: int = 0


class KeyedRecord(NamedTuple):
    """What compaction asks about a record: its key, and where its bytes are in the payload."""

    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    position: int
    size: int


@unique
class Rule(IntEnum):
    """What a walk over the records of a batch checks, in the order in which it does."""

    OK = 0
    COUNT = 1
    MISSING = 2
    CUT_OFF = 3
    VARINT = 4
    LENGTH = 5
    KEY = 6
    VALUE = 7
    HEADER_COUNT = 8
    HEADER_KEY = 9
    HEADER_VALUE = 10
    UNUSED = 11
    SEQUENCE = 12
    TRAILING = 13


RULE_TEXTS = {
    Rule.OK: "is well formed",
    Rule.COUNT: "the batch claims more records than its bytes can hold",
    Rule.MISSING: "is missing: the batch claims more records than it holds",
    Rule.CUT_OFF: "is cut off",
    Rule.VARINT: "has a varint of too many bytes",
    Rule.LENGTH: "has a length out of bounds",
    Rule.KEY: "has a key length out of bounds",
    Rule.VALUE: "has a value length out of bounds",
    Rule.HEADER_COUNT: "has a header count out of bounds",
    Rule.HEADER_KEY: "has a header key length out of bounds",
    Rule.HEADER_VALUE: "has a header value length out of bounds",
    Rule.UNUSED: "is longer than its contents",
    Rule.SEQUENCE: "does not have the next offset delta",
    Rule.TRAILING: "is followed by bytes of no record",
}


class Walk(NamedTuple):
    """The outcome of `validate`: the first broken rule and its record, or the facts of a sound batch."""

    rule: int
    record_index: int
    timestamp_delta_min: int
    timestamp_delta_max: int
    offset_delta_of_max: int
    has_null_key: bool


class ColumnBuffers(NamedTuple):
    """Records as raw buffers in Arrow's layout; a validity bitmap is None where nothing is null.

    Offsets into data are int32. `header_offsets` delimits each record's headers, which are a list of structs.
    """

    length: int
    offset: bytes
    timestamp: bytes
    key_validity: bytes | None
    key_offsets: bytes
    key_data: Buffer
    value_validity: bytes | None
    value_offsets: bytes
    value_data: Buffer
    header_count: int
    header_offsets: bytes
    header_key_offsets: bytes
    header_key_data: Buffer
    header_value_validity: bytes | None
    header_value_offsets: bytes
    header_value_data: Buffer


class Encoded(NamedTuple):
    """Records as the payload of a batch, with what its header must say about them."""

    payload: bytes
    row_count: int
    base_timestamp: int
    max_timestamp: int


class MalformedRecord(MalformedMessage):
    """A record that breaks a rule of the format."""

    def __init__(self, rule: Rule, index: int) -> None:
        text = RULE_TEXTS[rule]
        super().__init__(text if rule is Rule.COUNT else f"record {index} {text}")
        self.rule = rule
        self.index = index


def malformed(rule: int, index: int) -> MalformedRecord:
    """The error for a broken rule; the kernel and its twin both build it here, so that they say the same."""
    return MalformedRecord(Rule(rule), index)
