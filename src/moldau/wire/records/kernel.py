"""What can be done with the uncompressed records of a batch: in C where compiled, else in Python.

A *payload* is the records section of a batch, the bytes after its 61-byte header, decompressed; any
contiguous buffer will do. `count` is the header's. Except for `validate`, which reports, every function
raises `MalformedMessage` where the payload breaks a rule of the format, with the same words in C and in
Python. Both refuse a count that the payload cannot hold before they allocate anything. C gives the GIL away
for more than 64 KiB.

- `validate(payload, count) -> Walk`: walk all records, as a produced batch must be: lengths within bounds,
  varints of at most 5 and 10 bytes, offset deltas 0..count-1 in order, no byte left over. The result names
  the first broken rule and its record, or tells the least and greatest timestamp delta, the offset delta of
  the (first) greatest, and whether a key is null.
- `plain_header(batch, bytes_max, now_ms, before_ms_max, after_ms_max, needs_keys) -> BatchHeader | None`: the
  header of a whole batch, where nothing speaks against appending it as it came, but perhaps its CRC, which is
  not computed: one batch of magic 2 from offset 0, no larger than `bytes_max`, uncompressed, with records as
  `validate` wants them, all of them dated by their producer within the range, and their greatest timestamp
  in the header. None says nothing about why.
- `decode(payload, count, base_offset, base_timestamp, log_append_time=None) -> list[Record]`.
- `encode(records, base_offset, base_timestamp) -> bytes`: offsets are the records' own, relative to
  `base_offset`.
- `keys(payload, count) -> list[KeyedRecord]`: key, kind and place of each record.
- `retain(payload, count, mask) -> bytes`: the records whose byte in the mask is not 0, verbatim: compaction
  keeps base offset, deltas and bytes.
- `rebase_timestamps(payload, count, shift) -> bytes`: add `shift` to every timestamp delta, for a base
  timestamp that moves by -shift (a delete horizon takes its place).
- `find_timestamp(payload, count, base_timestamp, target, offset_delta_min=...) -> (offset delta, timestamp)
  | None`: the first record at or after `target`.
- `to_columns(runs, offset_from=..., offset_until=...) -> ColumnBuffers`: several batches as one set of
  Arrow buffers, without the records outside the range of offsets.
- `from_columns(length, start, timestamps, keys, values, headers) -> (payload, base timestamp, max
  timestamp)`: rows of Arrow buffers as records; None for a column that is null throughout.
- `murmur2(data) -> int`: Kafka's 32-bit Murmur2, without a sign.
- `hash_keys(length, keys) -> bytes`: for each row of a column of keys an int32 in the machine's byte order:
  what the Java client takes modulo the number of partitions, or -1 where the key is null.
- `OffsetMap(slots, keys_max, secret)`: the latest offset of each key, for compaction. `put_all(payload,
  count, base_offset, offset_from=0)` returns how many records there was room for; `retained(payload, count,
  base_offset, keep_tombstones)` is the mask for `retain`: what is newer than all the map has seen is kept,
  a record without a key is not, and of a key the latest (a tombstone only if asked to). `advance(offset)`
  counts offsets as seen that put nothing in, such as control batches.

The map stores hashes in place of keys, 24 bytes a slot, so two keys with one hash would be one key, and the
older record would be lost. Hence SipHash-2-4 with 128 bits under a secret of the caller: by accident that
happens once in 10^20 for a billion keys, and a producer cannot construct it without the secret, as it could
for Kafka's MD5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from moldau.wire.compiled import warn_of_stale, why_stale

_NAMES: Final = (
    *(
        "validate",
        "plain_header",
        "decode",
        "encode",
        "keys",
        "retain",
        "rebase_timestamps",
        "find_timestamp",
    ),
    *("to_columns", "from_columns", "murmur2", "hash_keys", "OffsetMap"),
)

# Why there is a compiled kernel, but none that could be used.
STALE: str | None = None

if TYPE_CHECKING:
    from moldau.wire.records import _kernel as implementation

    NAME: Literal["compiled", "pure"]
else:
    try:
        # MOLDAU_KERNEL=pure makes this import fail: C looks at the environment, pure code may not.
        from moldau.wire.records import _kernel as implementation

        STALE = why_stale(implementation, _NAMES)
    except ImportError:
        implementation = None
    except AttributeError as error:
        STALE = f"it does not fit the code around it: {error}"
    if STALE is not None:
        warn_of_stale("moldau.wire.records._kernel", STALE)
    if implementation is None or STALE is not None:
        from moldau.wire.records import pure as implementation

        NAME: Final = "pure"
    else:
        NAME: Final = "compiled"

validate = implementation.validate
plain_header = implementation.plain_header
decode = implementation.decode
encode = implementation.encode
keys = implementation.keys
retain = implementation.retain
rebase_timestamps = implementation.rebase_timestamps
find_timestamp = implementation.find_timestamp
to_columns = implementation.to_columns
from_columns = implementation.from_columns
murmur2 = implementation.murmur2
hash_keys = implementation.hash_keys
OffsetMap = implementation.OffsetMap
