"""The codecs of record batches, in the variants that Java writes, each bounded in what it may expand to."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum, unique
from types import ModuleType
from typing import Final

import cramjam
import lz4.frame

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.records.header import Buffer

gzip_reader: ModuleType
try:
    # Reads faster. It is not used to write: its levels are not zlib's, and what a broker writes should not
    # depend on what else is installed.
    from isal import isal_zlib

    gzip_reader = isal_zlib
except ImportError:
    gzip_reader = zlib

DECOMPRESSED_BYTES_MAX: Final = 128 * 2**20

GZIP_LEVEL_DEFAULT: Final = -1
LZ4_LEVEL_DEFAULT: Final = 9
ZSTD_LEVEL_DEFAULT: Final = 3

_GZIP_WINDOW_BITS: Final = 31  # a window of 32 KiB, and gzip's header and trailer
_GZIP_CHUNK_BYTES: Final = 64 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")

_LZ4_LEVEL_MAX: Final = 12
_LZ4_CHUNK_BYTES: Final = 256 * 1024

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_COMPRESSED_BLOCK: Final = 2
_ZSTD_RLE_BLOCK: Final = 1
_CONTENT_SIZE_BASE: Final = 256  # added to content sizes of two bytes, RFC 8878


@unique
class Codec(IntEnum):
    """How the records of a batch are compressed: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, payload: Buffer, level: int | None = None) -> Buffer:
    """The payload as Java would compress it; `level` is Kafka's for the codec (none for snappy)."""
    match codec:
        case Codec.NONE:
            return payload
        case Codec.GZIP:
            return zlib.compress(payload, GZIP_LEVEL_DEFAULT if level is None else level, _GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_xerial(payload)
        case Codec.LZ4:
            return _compress_lz4(payload, LZ4_LEVEL_DEFAULT if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload, ZSTD_LEVEL_DEFAULT if level is None else level))


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What was compressed; MESSAGE_TOO_LARGE, before they exist, if it has more than `bytes_max` bytes."""
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
        return data
    read = _READERS.get(codec)
    if read is None:
        raise MalformedMessage(f"there is no compression codec {codec}")
    return read(data, bytes_max)


def _too_large(bytes_max: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the records expand to more than {bytes_max} bytes")


def _read_gzip(data: Buffer, bytes_max: int) -> Buffer:
    """One gzip member, in chunks, so that no more than a chunk beyond the limit ever exists."""
    reader = gzip_reader.decompressobj(_GZIP_WINDOW_BITS)
    out = bytearray()
    view = memoryview(data)
    try:
        for start in range(0, len(view), _GZIP_CHUNK_BYTES):
            pending: Buffer = view[start : start + _GZIP_CHUNK_BYTES]
            while pending and not reader.eof:
                out += reader.decompress(pending, _GZIP_CHUNK_BYTES)
                if len(out) > bytes_max:
                    raise _too_large(bytes_max)
                pending = reader.unconsumed_tail
        while not reader.eof and (piece := reader.decompress(b"", _GZIP_CHUNK_BYTES)):
            out += piece
            if len(out) > bytes_max:
                raise _too_large(bytes_max)
    except (zlib.error, gzip_reader.error) as error:
        raise MalformedMessage(f"gzip: {error}") from None
    if not reader.eof:
        raise MalformedMessage("gzip: the data are cut off")
    return out


def _compress_xerial(payload: Buffer) -> bytes:
    view = memoryview(payload)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _read_snappy(data: Buffer, bytes_max: int) -> Buffer:
    """Blocks in xerial's framing, as Java and librdkafka write them, or one raw block, as some others do."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _read_snappy_block(view, bytes_max, bytes_max)
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise MalformedMessage("snappy: the data are cut off")
    out = bytearray()
    while at < len(view):
        if len(view) - at < _BLOCK_LENGTH.size:
            raise MalformedMessage("snappy: the data are cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(view, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - at:
            raise MalformedMessage(f"snappy: a block of {length} bytes with {len(view) - at} left")
        out += _read_snappy_block(view[at : at + length], bytes_max - len(out), bytes_max)
        at += length
    return out


def _read_snappy_block(block: memoryview, room: int, bytes_max: int) -> bytearray:
    try:
        # The block begins with its uncompressed length, which must be backed by room before it is believed.
        length = cramjam.snappy.decompress_raw_len(block)
        if length > room:
            raise _too_large(bytes_max)
        out = bytearray(length)
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise MalformedMessage(f"snappy: {error}") from None
    assert written == length
    return out


def _compress_lz4(payload: Buffer, level: int) -> bytes:
    # Java uses the fast compressor at its default level and the high compressor at any other; it reads
    # independent blocks only. Levels above 12 exist in Kafka's range, not in the library.
    is_fast = level == LZ4_LEVEL_DEFAULT
    frame: bytes = lz4.frame.compress(
        payload,
        compression_level=0 if is_fast else min(max(level, lz4.frame.COMPRESSIONLEVEL_MINHC), _LZ4_LEVEL_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _read_lz4(data: Buffer, bytes_max: int) -> Buffer:
    """One frame, in chunks like gzip; what the frame claims about its content is not relied upon."""
    reader = lz4.frame.LZ4FrameDecompressor()
    out = bytearray()
    pending = data
    try:
        while not reader.eof and (piece := reader.decompress(pending, max_length=_LZ4_CHUNK_BYTES)):
            out += piece
            if len(out) > bytes_max:
                raise _too_large(bytes_max)
            pending = b""  # the reader keeps what it has not used
    except (RuntimeError, ValueError, EOFError) as error:
        raise MalformedMessage(f"lz4: {error}") from None
    if not reader.eof:
        raise MalformedMessage("lz4: the data are cut off")
    return out


def _read_zstd(data: Buffer, bytes_max: int) -> Buffer:
    bound = _zstd_bound(memoryview(data))
    out = bytearray(min(bound, bytes_max))
    try:
        written = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        # The library knows two reasons to fail; only a full buffer that was cut short means too large.
        if bound > bytes_max and "write whole buffer" in str(error):
            raise _too_large(bytes_max) from None
        raise MalformedMessage(f"zstd: {error}") from None
    return memoryview(out)[:written]


def _zstd_bound(data: memoryview) -> int:
    """The most that the frames can expand to, from their headers and those of their blocks (RFC 8878).

    Java writes frames without a content size. Blocks before the last are nearly always full, so their number
    is as good: no output is thrown away, and none is produced twice to find its size.
    """
    bound = at = 0
    try:
        while at < len(data):
            if data[at] & 0xF0 == 0x50 and bytes(data[at + 1 : at + 4]) == _ZSTD_SKIPPABLE:
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
                continue
            if bytes(data[at : at + 4]) != _ZSTD_MAGIC:
                raise MalformedMessage("zstd: not a frame")
            descriptor = data[at + 4]
            is_single_segment = descriptor & 0x20 != 0
            content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
            at += 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
            content_size = int.from_bytes(data[at : at + content_size_bytes], "little")
            at += content_size_bytes
            blocks_bound, is_last = 0, False
            while not is_last:
                block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
                is_last, kind, size = block & 1 == 1, block >> 1 & 3, block >> 3
                blocks_bound += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED_BLOCK else size
                at += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
            at += 4 if descriptor & 0x04 else 0
            if content_size_bytes:
                content_size += _CONTENT_SIZE_BASE if content_size_bytes == 2 else 0
                blocks_bound = min(blocks_bound, content_size)
            bound += blocks_bound
    except IndexError:
        raise MalformedMessage("zstd: the data are cut off") from None
    return bound


_READERS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.GZIP: _read_gzip,
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _read_lz4,
    Codec.ZSTD: _read_zstd,
}
