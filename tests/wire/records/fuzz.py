"""Payloads as an enemy would send them, and the comparison of the two kernels on them.

Run it on its own for as long as you like, also with the kernel under AddressSanitizer:

    python tests/wire/records/fuzz.py --seed 1 --cases 100000

    gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fPIC -shared \
        $(python3-config --includes) src/moldau/wire/records/_kernel.c \
        -o src/moldau/wire/records/_kernel$(python3-config --extension-suffix)
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=src:tests python tests/wire/records/fuzz.py
"""

import argparse
import random
from collections.abc import Callable
from types import ModuleType

from moldau.wire.records import pure
from moldau.wire.records.header import BATCH_LENGTH_MIN, HEADER, MAGIC
from moldau.wire.records.record import Record

COUNTS = (-(2**31), -1, 0, 1, 2, 3, 20, 2**31 - 1)
INT64_MAX = 2**63 - 1
BASES = (0, 1, 1_700_000_000_000, -1, 2**63 - 1, -(2**63))
HOSTILE = (
    b"\xff\xff\xff\xff\x0f",  # the least int32
    b"\xfe\xff\xff\xff\x0f",  # the greatest
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"\x80\x80\x00",  # zero in more bytes than it needs
    b"\x01",
    b"\x03",
    b"\x7f",
)


def payload_for(rng: random.Random) -> tuple[bytes, int]:
    """A sound payload or one with something done to it, and a count to go with it."""
    count = rng.choice((0, 1, 2, 5, 17, 40))
    payload = bytearray(
        pure.encode([_record(rng, index) for index in range(count)], 0, rng.choice(BASES[:3]))
    )
    for _ in range(rng.choice((0, 0, 1, 1, 2, 6))):
        at = rng.randrange(len(payload) + 1)
        match rng.randrange(6):
            case 0 if payload:
                payload[at % len(payload)] = rng.randrange(256)
            case 1 if payload:
                payload[at % len(payload)] ^= 1 << rng.randrange(8)
            case 2:
                del payload[at:]
            case 3:
                payload[at : at + rng.randrange(3)] = rng.choice(HOSTILE)
            case 4:
                payload += rng.randbytes(rng.randrange(12))
            case 5:
                del payload[at : at + rng.randrange(4)]
    if rng.random() < 0.1:
        count = rng.choice(COUNTS)
    return bytes(payload), count


def batch_for(rng: random.Random) -> bytes:
    """A batch that a broker would append as it came, or one with something done to it; its CRC is no good."""
    base = rng.choice(BASES)
    payload, count = payload_for(rng)
    if rng.random() < 0.8:
        base, count = BASES[2], rng.choice((1, 2, 20))
        times = [base + rng.choice((0, 0, 0, 1, -5)) for _ in range(count)]
        records = [
            _record(rng, index)._replace(offset=index, timestamp=times[index]) for index in range(count)
        ]
        payload = pure.encode(records, 0, base)
    walk = pure.validate(payload, count)
    length = BATCH_LENGTH_MIN + len(payload)
    greatest = base + walk.timestamp_delta_max
    values = [0, length, -1, MAGIC, 0, 0, count - 1, base, greatest, -1, -1, -1, count]
    bits = (64, 32, 32, 8, 32, 16, 32, 64, 64, 64, 16, 32, 32)
    for _ in range(rng.choice((0, 0, 1, 2))):
        field = rng.randrange(len(values))
        values[field] = rng.choice((0, 1, 2, 7, 8, 32, -1, values[field] + 1, values[field] - 1, INT64_MAX))
    values = [
        max(min(value, 2 ** (n - 1) - 1), -(2 ** (n - 1))) for value, n in zip(values, bits, strict=True)
    ]
    values[4] = max(values[4], 0)
    return bytes(HEADER.pack(*values) + payload)[: rng.choice((None, None, None, None, 60, 61, 70))]


def _record(rng: random.Random, index: int) -> Record:
    def some_bytes() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 5, 30, 70, 200)))

    headers = tuple(
        (rng.choice(("", "a", "é", "long" * 20)), some_bytes()) for _ in range(rng.choice((0, 0, 0, 1, 3)))
    )
    timestamp = rng.choice((0, 5, 1_700_000_000_000 + index, -(2**63), 2**63 - 1))
    return Record(index + rng.choice((0, 0, 0, 0, 1)), timestamp, some_bytes(), some_bytes(), headers)


def compare(one: ModuleType, other: ModuleType, rng: random.Random) -> None:
    """One case: every function of both kernels must return the same, or raise the same in the same words."""
    payload, count = payload_for(rng)
    base, timestamp = rng.choice(BASES), rng.choice(BASES)
    log_append_time = rng.choice((None, 77))
    mask = rng.randbytes(max(min(count, 100), 0))
    runs = [(payload, count, base, timestamp, log_append_time)] + [
        (*payload_for(rng), 5, 5, None) for _ in range(rng.choice((0, 0, 2)))
    ]
    first, second = sorted((rng.choice(BASES), rng.randrange(60)))
    shift, target = rng.choice(BASES), rng.choice(BASES)
    map_base, keys_max = rng.choice((0, 10, 2**63 - 1)), rng.choice((0, 3, 50))

    def mapped(kernel: ModuleType) -> object:
        offsets = kernel.OffsetMap(keys_max + 1 + rng_slots, keys_max, bytes(range(16)))
        put = offsets.put_all(payload, count, map_base, 2)
        kept = offsets.retained(payload, count, map_base, log_append_time is None)
        return put, kept, len(offsets), offsets.latest_offset

    rng_slots = rng.choice((0, 60))
    batch, bytes_max = batch_for(rng), rng.choice((100, 10_000, 10_000, 10_000))
    older, newer = (rng.choice((0, 10, INT64_MAX, INT64_MAX)) for _ in range(2))
    calls: list[Callable[[ModuleType], object]] = [
        lambda kernel: kernel.validate(payload, count),
        lambda kernel: kernel.plain_header(batch, bytes_max, BASES[2], older, newer, rng_slots > 0),
        lambda kernel: kernel.decode(payload, count, base, timestamp, log_append_time),
        lambda kernel: kernel.keys(payload, count),
        lambda kernel: kernel.retain(payload, count, mask),
        lambda kernel: kernel.rebase_timestamps(payload, count, shift),
        lambda kernel: kernel.find_timestamp(payload, count, timestamp, target, 1),
        lambda kernel: kernel.to_columns(runs, first, second),
        lambda kernel: kernel.to_columns(runs),
        mapped,
    ]
    for call in calls:
        left, right = outcome(call, one), outcome(call, other)
        assert left == right, (payload.hex(), count, left, right)
    _compare_columns(one, other, rng)


def _compare_columns(one: ModuleType, other: ModuleType, rng: random.Random) -> None:
    """Columns whose offsets and bitmaps are sound, or not."""
    count = rng.choice((1, 2, 20))
    payload = pure.encode([_record(rng, index)._replace(offset=index) for index in range(count)], 0, 0)
    buffers = pure.to_columns([(payload, count, 0, 0, None)])
    columns = [bytearray(part) if isinstance(part, bytes) else None for part in buffers]
    for _ in range(rng.choice((0, 0, 1, 3))):
        part = columns[rng.randrange(len(columns))]
        if part:
            if rng.random() < 0.3:
                del part[rng.randrange(len(part)) :]
            else:
                part[rng.randrange(len(part))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    _, _, times, key_bits, key_ends, key_data, value_bits, value_ends, value_data, _, *rest = columns
    header_ends, name_ends, name_data, header_bits, header_value_ends, header_value_data = rest
    start, length = rng.choice((0, 0, 0, 1, -1, 2**62)), rng.choice((count, count, count - 1, 0, 2**31))
    headers = (
        start,
        None,
        header_ends,
        buffers.header_count + rng.choice((0, 0, 0, 1, -1)),
        (0, None, name_ends, name_data),
        (0, header_bits, header_value_ends, header_value_data),
    )

    def call(kernel: ModuleType) -> object:
        keys, values = (start, key_bits, key_ends, key_data), (start, value_bits, value_ends, value_data)
        return kernel.from_columns(length, start, times, keys, values, headers)

    def hashed(kernel: ModuleType) -> object:
        return kernel.hash_keys(length, (start, key_bits, key_ends, key_data))

    for each in (call, hashed):
        left, right = outcome(each, one), outcome(each, other)
        assert left == right, (columns, start, length, left, right)


def outcome(call: Callable[[ModuleType], object], kernel: ModuleType) -> object:
    try:
        return call(kernel)
    except (ValueError, OverflowError) as error:
        return type(error).__name__, str(error)


def main() -> None:
    from moldau.wire.records import _kernel

    arguments = argparse.ArgumentParser(description="Compare the kernels on hostile payloads.")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--cases", type=int, default=20_000)
    chosen = arguments.parse_args()
    rng = random.Random(chosen.seed)
    for _ in range(chosen.cases):
        compare(_kernel, pure, rng)


if __name__ == "__main__":
    main()
