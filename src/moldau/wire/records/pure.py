"""The kernel's twin in Python: the same functions with the same answers, for machines without a compiler.

What each function is for stands in `kernel`; here are only the reasons that are particular to Python. numpy,
where it is installed, takes the columns out of the interpreter: only the chain of lengths needs a loop.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, NamedTuple

from moldau.wire.records.header import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    Buffer,
    read_header,
)
from moldau.wire.records.record import (
    ColumnBuffers,
    HeaderColumn,
    KeyedRecord,
    MalformedRecord,
    Record,
    Rule,
    Run,
    Strings,
    Walk,
    malformed,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    _Ints = list[int] | Int64s

RECORD_BYTES_MIN = 7
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_UINT64_MAX = 2**64 - 1
_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10
_SECRET_BYTES = 16
_UINT32 = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_NOT_PLAIN = CODEC_MASK | LOG_APPEND_TIME_FLAG | CONTROL_FLAG
_TABLE_COUNT_MIN = 16  # for fewer records a walk is faster than calling numpy thirty times

_TOO_LARGE = "a record cannot be larger than 2 GiB"


# ---------------------------------------------------------------- whole payloads


def validate(payload: Buffer, count: int) -> Walk:
    """See `kernel.validate`."""
    table = _table_of(payload, count)
    if table is not None and _are_in_sequence(table.offset_deltas):
        of_max = int(table.timestamp_deltas.argmax())
        timestamp_min, timestamp_max = int(table.timestamp_deltas.min()), int(table.timestamp_deltas[of_max])
        return Walk(0, count, timestamp_min, timestamp_max, of_max, bool((table.key_lengths < 0).any()))
    timestamp_min, timestamp_max, offset_of_max, has_null_key = INT64_MAX, INT64_MIN, -1, False
    try:
        for index, record in _walk(payload, count):
            if record.offset_delta != index:
                raise malformed(Rule.SEQUENCE, index)
            if record.timestamp_delta > timestamp_max:
                timestamp_max, offset_of_max = record.timestamp_delta, record.offset_delta
            timestamp_min = min(timestamp_min, record.timestamp_delta)
            has_null_key = has_null_key or record.key_length < 0
    except MalformedRecord as error:
        return Walk(error.rule.value, error.index, 0, 0, -1, False)
    if count == 0:
        return Walk(0, 0, 0, 0, -1, False)
    return Walk(0, count, timestamp_min, timestamp_max, offset_of_max, has_null_key)


def plain_header(
    batch: Buffer,
    bytes_max: int,
    now_ms: int,
    before_ms_max: int,
    after_ms_max: int,
    needs_keys: bool,
) -> BatchHeader | None:
    """See `kernel.plain_header`."""
    if not HEADER_BYTES <= len(batch) <= bytes_max:
        return None
    header = read_header(batch)
    if (
        header.magic != MAGIC
        or header.base_offset != 0
        or header.size_bytes != len(batch)
        or header.attributes & _NOT_PLAIN
        or not 0 <= header.last_offset_delta == header.count - 1
        or (header.base_sequence < 0 and header.producer_id >= 0)
    ):
        return None
    walk = validate(memoryview(batch)[HEADER_BYTES:], header.count)
    latest = header.base_timestamp + walk.timestamp_delta_max
    earliest = header.base_timestamp + walk.timestamp_delta_min
    is_plain = (
        walk.rule == Rule.OK
        and not (needs_keys and walk.has_null_key)
        and latest == header.max_timestamp
        and INT64_MIN <= earliest <= latest <= INT64_MAX
        and now_ms - before_ms_max <= earliest <= latest <= now_ms + after_ms_max
    )
    return header if is_plain else None


def decode(
    payload: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None = None
) -> list[Record]:
    """See `kernel.decode`."""
    data = bytes(payload)
    return [
        Record(
            _int64(base_offset + record.offset_delta),
            _int64(base_timestamp + record.timestamp_delta) if log_append_time is None else log_append_time,
            _span(data, record.key_at, record.key_length),
            _span(data, record.value_at, record.value_length),
            tuple(
                # As in Kafka, a key that is not UTF-8 loses those characters, not its record.
                (
                    data[key_at : key_at + key_length].decode("utf-8", "replace"),
                    _span(data, value_at, value_length),
                )
                for key_at, key_length, value_at, value_length in record.headers
            ),
            record.attributes,
        )
        for _, record in _walk(data, count)
    ]


def encode(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """See `kernel.encode`."""
    out = bytearray()
    for record in records:
        if len(record) != len(Record._fields):
            raise TypeError("a record is a Record")
        offset, timestamp, key, value, headers, attributes = record
        offset_delta = offset - base_offset
        if not INT32_MIN <= offset_delta <= INT32_MAX:
            raise ValueError("the offset of a record is too far from the base offset")
        if not -0x80 <= attributes <= 0x7F:
            raise ValueError("the attributes of a record are one signed byte")
        tail = bytearray()
        _put_varint(tail, len(headers))
        for header in headers:
            key_text, header_value = header
            _put_bytes(tail, key_text.encode())
            _put_bytes(tail, header_value)
        _put_record(out, attributes, _int64(timestamp - base_timestamp), offset_delta, key, value, tail)
    return bytes(out)


def keys(payload: Buffer, count: int) -> list[KeyedRecord]:
    """See `kernel.keys`."""
    data = bytes(payload)
    return [
        KeyedRecord(
            record.offset_delta,
            _span(data, record.key_at, record.key_length),
            record.value_length < 0,
            record.start,
            record.end - record.start,
        )
        for _, record in _walk(data, count)
    ]


def retain(payload: Buffer, count: int, mask: Buffer) -> bytes:
    """See `kernel.retain`."""
    _check_count(payload, count)
    if len(mask) != count:
        raise ValueError("the mask has one byte for each record")
    view = memoryview(payload)
    return b"".join(
        [view[record.start : record.end] for index, record in _walk(payload, count) if mask[index]]
    )


def rebase_timestamps(payload: Buffer, count: int, shift: int) -> bytes:
    """See `kernel.rebase_timestamps`."""
    view = memoryview(payload)
    out = bytearray()
    for _, record in _walk(payload, count):
        body = bytearray()
        body.append(record.attributes & 0xFF)
        _put_varint(body, _int64(record.timestamp_delta + shift))
        body += view[record.after_timestamp : record.end]
        if len(body) > INT32_MAX:
            raise ValueError(_TOO_LARGE)
        _put_varint(out, len(body))
        out += body
    return bytes(out)


def find_timestamp(
    payload: Buffer, count: int, base_timestamp: int, target: int, offset_delta_min: int = INT32_MIN
) -> tuple[int, int] | None:
    """See `kernel.find_timestamp`."""
    for _, record in _walk(payload, count):
        timestamp = _int64(base_timestamp + record.timestamp_delta)
        if timestamp >= target and record.offset_delta >= offset_delta_min:
            return record.offset_delta, timestamp
    return None


class OffsetMap:
    """See `kernel.OffsetMap`. It keeps the keys themselves, which needs more memory and cannot collide."""

    def __init__(self, slots: int, keys_max: int, secret: Buffer) -> None:
        if len(secret) != _SECRET_BYTES:
            raise ValueError("the secret has 16 bytes")
        if not 0 <= keys_max < slots:
            raise ValueError("a map needs more slots than keys")
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: Buffer, offset: int) -> bool:
        """Note the offset of a key; False when the map is full."""
        if not 0 <= offset < INT64_MAX:
            raise ValueError("an offset is not negative")
        if not self._has_room_for(bytes(key)):
            return False
        self._offsets[bytes(key)] = offset
        self.advance(offset)
        return True

    def get(self, key: Buffer) -> int:
        """The latest offset of a key, or -1."""
        return self._offsets.get(bytes(key), -1)

    def advance(self, offset: int) -> None:
        """Count everything up to an offset as seen."""
        self.latest_offset = max(self.latest_offset, offset)

    def put_all(self, payload: Buffer, count: int, base_offset: int, offset_from: int = 0) -> int:
        """Note the keys of a batch; how many records there was room for."""
        data = bytes(payload)
        for index, offset, record in self._offsets_of(data, count, base_offset):
            if offset >= offset_from and record.key_length >= 0:
                key = data[record.key_at : record.key_at + record.key_length]
                if not self._has_room_for(key):
                    return index
                self._offsets[key] = offset
            self.advance(offset)
        return count

    def retained(self, payload: Buffer, count: int, base_offset: int, keep_tombstones: bool) -> bytes:
        """Which records of a batch compaction keeps, a byte each."""
        data = bytes(payload)
        return bytes(
            offset > self.latest_offset
            or (
                record.key_length >= 0
                and (record.value_length >= 0 or keep_tombstones)
                and offset >= self.get(data[record.key_at : record.key_at + record.key_length])
            )
            for _, offset, record in self._offsets_of(data, count, base_offset)
        )

    def _has_room_for(self, key: bytes) -> bool:
        return len(self._offsets) < self._keys_max or key in self._offsets

    def _offsets_of(self, data: bytes, count: int, base_offset: int) -> Iterator[tuple[int, int, _Parsed]]:
        if not 0 <= base_offset <= INT64_MAX - 1 - INT32_MAX:
            raise ValueError("the base offset is out of range")
        for index, record in _walk(data, count):
            if record.offset_delta < 0:
                raise malformed(Rule.SEQUENCE, index)
            yield index, base_offset + record.offset_delta, record


# ---------------------------------------------------------------- one record


class _Parsed(NamedTuple):
    """One record as places in the payload; the length of a null is -1."""

    start: int
    after_timestamp: int
    end: int
    attributes: int
    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    headers: tuple[tuple[int, int, int, int], ...]


def _walk(payload: Buffer, count: int) -> Iterator[tuple[int, _Parsed]]:
    """Every record with its index; raises where one breaks a rule, and when bytes are left after the last."""
    _check_count(payload, count)
    table = _table_of(payload, count)
    if table is not None:
        yield from enumerate(_parsed_rows(table))
        return
    position = 0
    for index in range(count):
        record = _parse(payload, position, index)
        position = record.end
        yield index, record
    if position != len(payload):
        raise malformed(Rule.TRAILING, count - 1)


def _check_count(payload: Buffer, count: int) -> None:
    if count < 0 or count > len(payload) // RECORD_BYTES_MIN:
        raise malformed(Rule.COUNT, 0)


def _parse(data: Buffer, start: int, index: int) -> _Parsed:
    if start == len(data):
        raise malformed(Rule.MISSING, index)
    length, at = _varint(data, start, len(data), index)
    if length < RECORD_BYTES_MIN - 1 or length > len(data) - at:
        raise malformed(Rule.LENGTH, index)
    end = at + length
    attributes = data[at] - 0x100 if data[at] & 0x80 else data[at]
    timestamp_delta, after_timestamp = _varint(data, at + 1, end, index, _VARLONG_BYTES_MAX)
    offset_delta, at = _varint(data, after_timestamp, end, index)
    key_at, key_length, at = _place(data, at, end, index, Rule.KEY)
    value_at, value_length, at = _place(data, at, end, index, Rule.VALUE)
    header_count, at = _varint(data, at, end, index)
    if not 0 <= header_count <= end - at:
        raise malformed(Rule.HEADER_COUNT, index)
    headers = []
    for _ in range(header_count):
        header_key_at, header_key_length, at = _place(data, at, end, index, Rule.HEADER_KEY)
        header_value_at, header_value_length, at = _place(data, at, end, index, Rule.HEADER_VALUE)
        headers.append((header_key_at, header_key_length, header_value_at, header_value_length))
    if at != end:
        raise malformed(Rule.UNUSED, index)
    return _Parsed(
        start,
        after_timestamp,
        end,
        attributes,
        timestamp_delta,
        offset_delta,
        key_at,
        key_length,
        value_at,
        value_length,
        tuple(headers),
    )


def _place(data: Buffer, at: int, end: int, index: int, rule: Rule) -> tuple[int, int, int]:
    """Where a byte string is, its length, and where it ends; a header's key alone may not be null."""
    length, at = _varint(data, at, end, index)
    if length < (0 if rule is Rule.HEADER_KEY else -1) or length > end - at:
        raise malformed(rule, index)
    return at, length, at + max(length, 0)


def _varint(
    data: Buffer, at: int, end: int, index: int, bytes_max: int = _VARINT_BYTES_MAX
) -> tuple[int, int]:
    """A zigzag number and where it ends; bits beyond 32 (or 64) are dropped, as Java does."""
    if at < end and data[at] < 0x80:
        return (data[at] >> 1) ^ -(data[at] & 1), at + 1
    raw = shift = 0
    for position in range(at, at + bytes_max):
        if position == end:
            raise malformed(Rule.CUT_OFF, index)
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT64_MAX if bytes_max == _VARLONG_BYTES_MAX else 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    raise malformed(Rule.VARINT, index)


def _span(data: bytes, at: int, length: int) -> bytes | None:
    return None if length < 0 else data[at : at + length]


def _int64(value: int) -> int:
    """The sum of two int64 as 64-bit machines have it."""
    return ((value + 2**63) & _UINT64_MAX) - 2**63


def _put_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _put_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        _put_varint(out, -1)
        return
    view = memoryview(data)  # refuses what is not bytes, where `len` and `+=` would take a list
    if view.nbytes > INT32_MAX:
        raise ValueError(_TOO_LARGE)
    _put_varint(out, view.nbytes)
    out += view


def _put_record(
    out: bytearray,
    attributes: int,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: bytearray,
) -> None:
    body = bytearray()
    body.append(attributes & 0xFF)
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_bytes(body, key)
    _put_bytes(body, value)
    body += headers
    if len(body) > INT32_MAX:
        raise ValueError(_TOO_LARGE)
    _put_varint(out, len(body))
    out += body


# ---------------------------------------------------------------- records to columns


class _Rows(NamedTuple):
    """The rows of one run: numbers by row, byte strings as lengths (null: -1) and pieces of any size."""

    offsets: _Ints
    timestamps: _Ints
    keys: list[Buffer]
    key_lengths: _Ints
    values: list[Buffer]
    value_lengths: _Ints
    header_counts: _Ints
    header_keys: list[Buffer]
    header_key_lengths: list[int]
    header_values: list[Buffer]
    header_value_lengths: list[int]


def to_columns(
    runs: Iterable[Run], offset_from: int = INT64_MIN, offset_until: int = INT64_MAX
) -> ColumnBuffers:
    """See `kernel.to_columns`."""
    parts = []
    for run in runs:
        table = _table_of(run[0], run[1])
        if table is None:
            parts.append(_rows_walked(run, offset_from, offset_until))
        else:
            parts.append(_rows_of_table(table, run, offset_from, offset_until))
    header_counts = [len(part.header_keys) for part in parts]
    return ColumnBuffers(
        sum(len(part.offsets) for part in parts),
        b"".join(_int64_bytes(part.offsets) for part in parts),
        b"".join(_int64_bytes(part.timestamps) for part in parts),
        _bitmap([part.key_lengths for part in parts]),
        _ends([part.key_lengths for part in parts]),
        _joined([piece for part in parts for piece in part.keys]),
        _bitmap([part.value_lengths for part in parts]),
        _ends([part.value_lengths for part in parts]),
        _joined([piece for part in parts for piece in part.values]),
        sum(header_counts),
        _ends([part.header_counts for part in parts]),
        _ends([part.header_key_lengths for part in parts]),
        _joined([piece for part in parts for piece in part.header_keys]),
        _bitmap([part.header_value_lengths for part in parts]),
        _ends([part.header_value_lengths for part in parts]),
        _joined([piece for part in parts for piece in part.header_values]),
    )


def _joined(pieces: list[Buffer]) -> Buffer:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _rows_walked(run: Run, offset_from: int, offset_until: int) -> _Rows:
    payload, count, base_offset, base_timestamp, log_append_time = run
    view = memoryview(payload)
    rows = _Rows([], [], [], [], [], [], [], [], [], [], [])
    assert isinstance(rows.offsets, list) and isinstance(rows.timestamps, list)
    assert isinstance(rows.key_lengths, list) and isinstance(rows.value_lengths, list)
    assert isinstance(rows.header_counts, list)
    for _, record in _walk(payload, count):
        offset = _int64(base_offset + record.offset_delta)
        if not offset_from <= offset < offset_until:
            continue
        rows.offsets.append(offset)
        timestamp = _int64(base_timestamp + record.timestamp_delta)
        rows.timestamps.append(timestamp if log_append_time is None else log_append_time)
        rows.keys.append(view[record.key_at : record.key_at + max(record.key_length, 0)])
        rows.key_lengths.append(record.key_length)
        rows.values.append(view[record.value_at : record.value_at + max(record.value_length, 0)])
        rows.value_lengths.append(record.value_length)
        rows.header_counts.append(len(record.headers))
        _add_headers(rows, view, record)
    return rows


def _add_headers(rows: _Rows, view: memoryview, record: _Parsed) -> None:
    for key_at, key_length, value_at, value_length in record.headers:
        rows.header_keys.append(view[key_at : key_at + key_length])
        rows.header_key_lengths.append(key_length)
        rows.header_values.append(view[value_at : value_at + max(value_length, 0)])
        rows.header_value_lengths.append(value_length)


def _int64_bytes(numbers: _Ints) -> bytes:
    return (array("q", numbers) if isinstance(numbers, list) else numbers).tobytes()


def _ends(lengths: list[_Ints] | list[list[int]]) -> bytes:
    """Arrow's int32 offsets of byte strings or lists of these lengths, part after part."""
    total, parts = 0, [array("i", [0]).tobytes()]
    ends: _Ints
    for part in lengths:
        if not len(part):
            continue
        if isinstance(part, list):
            ends = list(accumulate((max(length, 0) for length in part), initial=total))[1:]
        else:
            ends = part.clip(min=0).cumsum() + total
        total = int(ends[-1])
        if total > INT32_MAX:
            raise ValueError("a column holds at most 2 GiB: convert fewer batches at a time")
        parts.append((array("i", ends) if isinstance(ends, list) else ends.astype("i")).tobytes())
    return b"".join(parts)


_BINARY_DIGITS = bytes.maketrans(b"\0\1", b"01")


def _bitmap(lengths: list[_Ints] | list[list[int]]) -> bytes | None:
    """A bit for each length that is not null, padded with ones; None where nothing is null."""
    validity = b"".join(
        bytes(length >= 0 for length in part) if isinstance(part, list) else (part >= 0).tobytes()
        for part in lengths
    )
    if 0 not in validity:
        return None
    validity += b"\1" * (-len(validity) % 8)
    # The base is a power of two, so reading the digits takes linear time.
    return int(validity[::-1].translate(_BINARY_DIGITS), 2).to_bytes(len(validity) // 8, "little")


# ---------------------------------------------------------------- many records at once, with numpy


class _Table(NamedTuple):
    """All records of a payload, field by field as in `_Parsed`, and each of those with headers."""

    starts: Int64s
    after_timestamps: Int64s
    ends: Int64s
    attributes: Int64s
    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_ats: Int64s
    key_lengths: Int64s
    value_ats: Int64s
    value_lengths: Int64s
    header_counts: Int64s
    with_headers: dict[int, _Parsed]


def _table_of(payload: Buffer, count: int) -> _Table | None:
    """The records as arrays; None without numpy, or where anything is irregular: a walk then tells what."""
    if not _TABLE_COUNT_MIN <= count <= len(payload) // RECORD_BYTES_MIN:
        return None
    try:
        import numpy as np
    except ImportError:
        return None
    places = _places(bytes(payload), count)
    if places is None:
        return None
    boundaries, bodies = places
    size = len(payload)
    data = np.frombuffer(payload, np.uint8)
    starts, ends = boundaries[:-1], boundaries[1:]
    attributes = data.take(bodies, mode="clip").view(np.int8).astype(np.int64)
    timestamp_deltas, after_timestamps, timestamps_are_whole = _varints(data, bodies + 1, _VARLONG_BYTES_MAX)
    offset_deltas, at, offsets_are_whole = _varints(data, after_timestamps, _VARINT_BYTES_MAX)
    key_lengths, key_ats, keys_are_whole = _varints(data, at, _VARINT_BYTES_MAX)
    at = np.minimum(key_ats + np.maximum(key_lengths, 0), size)
    value_lengths, value_ats, values_are_whole = _varints(data, at, _VARINT_BYTES_MAX)
    at = np.minimum(value_ats + np.maximum(value_lengths, 0), size)
    header_counts, at, counts_are_whole = _varints(data, at, _VARINT_BYTES_MAX)
    # Positions only grow, so a record whose last field ends where it should has no field that reaches beyond.
    has_headers = header_counts != 0
    is_regular = (
        timestamps_are_whole
        and offsets_are_whole
        and keys_are_whole
        and values_are_whole
        and counts_are_whole
        and bool(((key_lengths >= -1) & (value_lengths >= -1) & ((at == ends) | has_headers)).all())
    )
    if not is_regular:
        return None
    try:
        with_headers = {
            index: _parse(payload, int(starts[index]), index) for index in has_headers.nonzero()[0].tolist()
        }
    except MalformedRecord:
        return None
    return _Table(
        starts,
        after_timestamps,
        ends,
        attributes,
        timestamp_deltas,
        offset_deltas,
        key_ats,
        key_lengths,
        value_ats,
        value_lengths,
        header_counts,
        with_headers,
    )


def _parsed_rows(table: _Table) -> Iterator[_Parsed]:
    headers: list[tuple[tuple[int, int, int, int], ...]] = [()] * len(table.starts)
    for index, record in table.with_headers.items():
        headers[index] = record.headers
    columns = [
        column.tolist() for column in table[: len(_Parsed._fields) - 1] if not isinstance(column, dict)
    ]
    return map(_Parsed._make, zip(*columns, headers, strict=True))


def _places(data: bytes, count: int) -> tuple[Int64s, Int64s] | None:
    """Where the records start, and the last one ends with the payload; and where their lengths end."""
    import numpy as np

    alike = _places_of_alike(data, count)
    if alike is not None:
        return alike
    starts = [0]
    append = starts.append
    at = 0
    try:
        for _ in range(count):
            low = data[at]
            if low & 1:  # odd before it is unfolded: negative
                return None
            if low < 0x80:
                at += (low >> 1) + 1
            else:
                high = data[at + 1]
                if high < 0x80:
                    at += (high << 6) + (low >> 1) - 62  # 64 for the bit that says "more", and the two bytes
                else:
                    length, at = _varint(data, at, len(data), 0)
                    at += length
            append(at)
    except (IndexError, MalformedRecord):
        return None
    if at != len(data):
        return None
    boundaries = np.array(starts, np.int64)
    _, bodies, _ = _varints(np.frombuffer(data, np.uint8), boundaries[:-1], _VARINT_BYTES_MAX)
    return boundaries, bodies


# What the two bytes of a length add to the step from one record to the next, which counts them as well.
_STEP_OF_LOW = [(low >> 1) - 62 for low in range(256)]
_STEP_OF_HIGH = [high << 6 for high in range(128)]


def _places_of_alike(data: bytes, count: int) -> tuple[Int64s, Int64s] | None:
    """The same for records whose lengths all take two bytes, as most do: first assumed, then checked.

    The loop over the starts is the one thing here that no array operation can do, so it is as bare as can be.
    """
    import numpy as np

    starts = [0]
    append, step_of_low, step_of_high, at = starts.append, _STEP_OF_LOW, _STEP_OF_HIGH, 0
    try:
        for _ in repeat(None, count):
            at += step_of_high[data[at + 1]] + step_of_low[data[at]]
            append(at)
    except IndexError:
        return None
    if at != len(data):
        return None
    boundaries = np.array(starts, np.int64)
    # Each start follows from the one before, so if all lengths are what they were taken for, all starts are.
    octets = np.frombuffer(data, np.uint8)
    lows, highs = octets[boundaries[:-1]], octets[boundaries[:-1] + 1]
    is_alike = ((lows & 0x81) == 0x80) & (highs < 0x80)
    return (boundaries, boundaries[:-1] + 2) if is_alike.all() else None


def _varints(data: NDArray[np.uint8], at: Int64s, bytes_max: int) -> tuple[Int64s, Int64s, bool]:
    """The number at each position, where it ends, and whether all of them end within `bytes_max` bytes.

    Past the end the last byte is read again and again: the positions then tell that something was wrong.
    """
    import numpy as np

    first = data.take(at, mode="clip")
    raw = (first & 0x7F).astype(np.uint64)
    end = at + 1
    open_rows = (first >= 0x80).nonzero()[0]
    for shift in range(7, 7 * bytes_max, 7):
        if not len(open_rows):
            break
        byte = data.take(end[open_rows], mode="clip")
        raw[open_rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        end[open_rows] += 1
        open_rows = open_rows[byte >= 0x80]
    if bytes_max == _VARINT_BYTES_MAX:
        raw &= np.uint64(0xFFFFFFFF)
    value = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
    return value, end, not len(open_rows)


def _are_in_sequence(offset_deltas: Int64s) -> bool:
    import numpy as np

    return bool((offset_deltas == np.arange(len(offset_deltas))).all())


def _rows_of_table(table: _Table, run: Run, offset_from: int, offset_until: int) -> _Rows:
    import numpy as np

    payload, _, base_offset, base_timestamp, log_append_time = run
    octets, view = np.frombuffer(payload, np.uint8), memoryview(payload)
    offsets = table.offset_deltas + np.int64(base_offset)
    if log_append_time is None:
        timestamps = table.timestamp_deltas + np.int64(base_timestamp)
    else:
        timestamps = np.full(len(offsets), log_append_time, np.int64)
    columns: tuple[Int64s, ...] = (
        offsets,
        timestamps,
        table.key_ats,
        table.key_lengths,
        table.value_ats,
        table.value_lengths,
        table.header_counts,
    )
    with_headers: Iterable[_Parsed] = table.with_headers.values()
    is_wanted = (offsets >= offset_from) & (offsets < offset_until)
    if not is_wanted.all():
        columns = tuple(column[is_wanted] for column in columns)
        with_headers = (record for index, record in table.with_headers.items() if is_wanted[index])
    offsets, timestamps, key_ats, key_lengths, value_ats, value_lengths, header_counts = columns
    rows = _Rows(
        offsets,
        timestamps,
        [_cut_out(octets, key_ats, key_lengths)],
        key_lengths,
        [_cut_out(octets, value_ats, value_lengths)],
        value_lengths,
        header_counts,
        [],
        [],
        [],
        [],
    )
    for record in with_headers:
        _add_headers(rows, view, record)
    return rows


# So many rows at a time: arrays of this size stay in the cache, and malloc keeps them at hand, while larger
# ones come from the system anew each time, page fault by page fault.
_CUT_OUT_ROWS = 640


def _cut_out(octets: NDArray[np.uint8], at: Int64s, lengths: Int64s) -> memoryview:
    """The byte strings at rising positions, one after the other: what lies between them is masked out."""
    import numpy as np

    lengths = lengths.clip(min=0)
    ends = at + lengths
    out = np.empty(int(lengths.sum()), np.uint8)
    is_wanted = np.arange(2 * _CUT_OUT_ROWS) % 2 == 0
    written = 0
    for row in range(0, len(at), _CUT_OUT_ROWS):
        starts, stops = at[row : row + _CUT_OUT_ROWS], ends[row : row + _CUT_OUT_ROWS]
        runs = np.zeros(
            2 * len(starts), np.int64
        )  # a string, a gap, a string, ..., and no gap after the last
        runs[0::2] = stops - starts
        runs[1:-1:2] = starts[1:] - stops[:-1]
        mask = np.repeat(is_wanted[: len(runs)], runs)
        size = int(runs[0::2].sum())
        out[written : written + size] = octets[starts[0] : stops[-1]][mask]
        written += size
    return out.data


# ---------------------------------------------------------------- columns to records


def from_columns(
    length: int,
    start: int,
    timestamps: Buffer,
    keys: Strings | None,
    values: Strings | None,
    headers: HeaderColumn | None,
) -> tuple[bytes, int, int]:
    """See `kernel.from_columns`."""
    if not 1 <= length <= INT32_MAX:
        raise ValueError("a batch has at least one row and at most 2^31 - 1")
    available = len(memoryview(timestamps).cast("B")) // 8
    if start < 0 or length > available or start > available - length:
        raise ValueError("the timestamps are too few for the rows")
    times = memoryview(timestamps).cast("B")[8 * start : 8 * (start + length)].cast("q").tolist()
    key_column = _StringColumn(keys, length)
    value_column = _StringColumn(values, length)
    header_column = _HeaderLists(headers, length)
    base_timestamp = times[0]
    out = bytearray()
    for row, timestamp in enumerate(times):
        key, value = key_column.at(row), value_column.at(row)
        tail = bytearray()
        header_column.put(tail, row)
        _put_record(out, 0, _int64(timestamp - base_timestamp), row, key, value, tail)
    return bytes(out), base_timestamp, max(times)


# ---------------------------------------------------------------- keys to partitions


def murmur2(data: Buffer) -> int:
    """See `kernel.murmur2`."""
    length = len(data)
    words = length >> 2
    hashed = _MURMUR_SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _MURMUR_FACTOR & _UINT32  # noqa: PLW2901
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _UINT32  # noqa: PLW2901
        hashed = hashed * _MURMUR_FACTOR & _UINT32 ^ word
    if length & 3:
        tail = int.from_bytes(data[words << 2 :], "little")
        hashed = (hashed ^ tail) * _MURMUR_FACTOR & _UINT32
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _UINT32
    return hashed ^ hashed >> 15


def hash_keys(length: int, keys: Strings | None) -> bytes:
    """See `kernel.hash_keys`."""
    if not 0 <= length <= INT32_MAX:
        raise ValueError("there are at least no rows and at most 2^31 - 1")
    column = _StringColumn(keys, length)
    hashes = (-1 if key is None else murmur2(key) & INT32_MAX for key in map(column.at, range(length)))
    return array("i", hashes).tobytes()


# ---------------------------------------------------------------- columns as they come


def _check_rows(start: int, length: int, validity: Buffer | None, offsets: Buffer) -> None:
    rows = memoryview(offsets).nbytes // 4 - 1
    if start < 0 or length > rows or start > rows - length:
        raise ValueError("the offsets of a column are too few for its rows")
    if validity is not None and memoryview(validity).nbytes < (start + length + 7) // 8:
        raise ValueError("the validity bitmap of a column is too short for its rows")


def _is_valid(validity: memoryview | None, row: int) -> bool:
    return validity is None or validity[row // 8] >> (row % 8) & 1 == 1


def _int32s(buffer: Buffer) -> memoryview:
    view = memoryview(buffer).cast("B")[: len(buffer) // 4 * 4]
    return view.cast("i") if len(view) else view


def _bytes_view(buffer: Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer).cast("B")


class _StringColumn:
    """A column of byte strings, every row null if there is no column."""

    def __init__(self, column: Strings | None, length: int) -> None:
        self._is_present = column is not None
        self._start, validity, offsets, data = column or (0, None, b"", None)
        if column is not None:
            _check_rows(self._start, length, validity, offsets)
        self._validity = _bytes_view(validity)
        self._offsets = _int32s(offsets)
        self._data = memoryview(b"" if data is None else data).cast("B")

    def at(self, row: int) -> memoryview | None:
        """The bytes of a row."""
        row += self._start
        if not self._is_present or not _is_valid(self._validity, row):
            return None
        start, end = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise ValueError("the offsets of a column point outside its data")
        return self._data[start:end]


class _HeaderLists:
    """A column of header lists, every row empty if there is no column."""

    def __init__(self, column: HeaderColumn | None, length: int) -> None:
        self._is_present = column is not None
        self._start, validity, offsets, self._count, keys, values = column or (0, None, b"", 0, None, None)
        if column is not None:
            _check_rows(self._start, length, validity, offsets)
            if not 0 <= self._count <= INT32_MAX:
                raise ValueError("the header count is out of range")
        self._validity = _bytes_view(validity)
        self._offsets = _int32s(offsets)
        self._keys = _StringColumn(keys, self._count)
        self._values = _StringColumn(values, self._count)

    def put(self, out: bytearray, row: int) -> None:
        """Write the headers of a row, with their count."""
        row += self._start
        if not self._is_present or not _is_valid(self._validity, row):
            _put_varint(out, 0)
            return
        start, end = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= end <= self._count:
            raise ValueError("the offsets of a column point outside its data")
        _put_varint(out, end - start)
        for index in range(start, end):
            key, value = self._keys.at(index), self._values.at(index)
            if key is None:
                raise ValueError("the key of a header is null")
            _put_bytes(out, key)
            _put_bytes(out, value)
