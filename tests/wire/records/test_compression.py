"""Codecs: the variants that other clients read, and a limit on what a few bytes may expand to."""

import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.records import compression
from moldau.wire.records.compression import Codec, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the same words again and again, " * 10_000
MIB = 2**20


@pytest.mark.parametrize("codec", list(Codec))
@given(payload=st.binary(max_size=400) | st.binary(min_size=1, max_size=9).map(lambda part: part * 30_000))
def test_what_was_compressed_comes_back(codec: Codec, payload: bytes) -> None:
    assert decompress(codec, compress(codec, payload)) == payload


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(KafkaError) as error:
        decompress(codec, data, len(TEXT) - 1)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_allocates_no_more_than_the_limit_and_a_chunk(codec: Codec) -> None:
    bomb = zlib.compress(bytes(256 * MIB), 9, 31) if codec is Codec.GZIP else compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError):
            decompress(codec, bomb, 4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5.5 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_are_cut_off_anywhere_are_malformed(codec: Codec) -> None:
    data = bytes(compress(codec, b"some words, some more words"))
    for size in range(len(data)):
        if codec is Codec.SNAPPY and size == 16:  # a header without a block is a stream of nothing
            assert decompress(codec, data[:size]) == b""
            continue
        with pytest.raises(MalformedMessage, match=codec.name.lower()):
            decompress(codec, data[:size])


@pytest.mark.parametrize("codec", CODECS)
@given(st.data())
def test_damaged_data_are_malformed_or_still_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    code, size = None, 0
    try:
        size = len(decompress(codec, damaged, 100_000))
    except MalformedMessage:
        return
    except KafkaError as error:
        code = error.code
    assert code in (None, ErrorCode.MESSAGE_TOO_LARGE)
    assert size <= 100_000


def test_there_are_four_codecs() -> None:
    for number in (5, 6, 7):
        with pytest.raises(MalformedMessage, match=f"no compression codec {number}"):
            decompress(number, b"")


def test_snappy_is_written_in_blocks_of_32_kib_behind_the_xerial_header() -> None:
    data = bytes(compress(Codec.SNAPPY, bytes(40_000)))
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    at, sizes = 16, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        sizes.append(cramjam.snappy.decompress_raw_len(data[at + 4 : at + 4 + length]))
        at += 4 + length
    assert sizes == [32 * 1024, 40_000 - 32 * 1024]


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("length", [-1, 2**31 - 1])
def test_a_snappy_block_with_an_impossible_length_is_malformed(length: int) -> None:
    data = bytes(compress(Codec.SNAPPY, b""))
    with pytest.raises(MalformedMessage):
        decompress(Codec.SNAPPY, data + struct.pack(">i", length) + b"x")


def test_lz4_is_written_as_java_reads_it() -> None:
    data = bytes(compress(Codec.LZ4, TEXT))
    magic, flags, block = struct.unpack_from("<IBB", data)
    assert magic == 0x184D2204
    assert flags == 0x60  # version 1, independent blocks, no checksums, no content size
    assert block == 0x40  # blocks of 64 KiB


def test_lz4_with_linked_blocks_and_a_content_size_is_read_too() -> None:
    assert decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, store_size=True)) == TEXT


def test_zstd_frames_without_a_content_size_are_read() -> None:
    stream = cramjam.zstd.Compressor(3)
    stream.compress(TEXT)
    data = bytes(stream.finish())
    assert data[4] >> 6 == 0 and not data[4] & 0x20
    assert decompress(Codec.ZSTD, data, len(TEXT)) == TEXT


def test_zstd_frames_and_skippable_ones_follow_each_other() -> None:
    frame = bytes(compress(Codec.ZSTD, TEXT))
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"any"
    assert decompress(Codec.ZSTD, frame + skippable + frame) == TEXT * 2


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -50, 19)]
)
def test_a_higher_level_compresses_better(codec: Codec, low: int, high: int) -> None:
    words = b" ".join(b"%d" % (number * number % 7919) for number in range(20_000))
    assert len(compress(codec, words, high)) < len(compress(codec, words, low))
    assert decompress(codec, compress(codec, words, high)) == words


@pytest.mark.parametrize("reader", ["zlib", "isal.isal_zlib"])
def test_gzip_is_read_alike_by_zlib_and_its_faster_stand_in(
    monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    monkeypatch.setattr(compression, "gzip_reader", pytest.importorskip(reader))
    data = bytes(compress(Codec.GZIP, TEXT))
    assert decompress(Codec.GZIP, data, len(TEXT)) == TEXT
    with pytest.raises(KafkaError):
        decompress(Codec.GZIP, data, len(TEXT) - 1)
    for broken in (data[:-1], data[:5], b"no gzip at all", data[:-8] + bytes(8), b""):
        with pytest.raises(MalformedMessage, match="gzip"):
            decompress(Codec.GZIP, broken)
