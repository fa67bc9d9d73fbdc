"""How fast messages are written and read, beside kafka-python in the same run.

Both sides turn the same content into whole bytes and whole bytes into objects, at the versions that
kafka-python speaks, with the garbage collector on as in any real process. `call` compares the methods that
clients of both use, and is promised to be at least two for Produce and Fetch; `codec` compares the functions
behind them, without the way there. `pure` does so with the decoder in Python, which serves where C is not
compiled, and about which nothing is promised. Record batches are opaque here; bench/records.py is about them.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from timeit import Timer
from typing import Any

from kafka.protocol.consumer.fetch import FetchRequest as TheirFetchRequest
from kafka.protocol.consumer.fetch import FetchResponse as TheirFetchResponse
from kafka.protocol.producer.produce import ProduceRequest as TheirProduceRequest
from kafka.protocol.producer.produce import ProduceResponse as TheirProduceResponse
from kafka.protocol.schemas.fields.codecs import EncodeBufferPool

from moldau.wire.compiler import HAS_INTERPRETER, Chunk, decoder, encoder, python_decoder
from moldau.wire.message import Message
from moldau.wire.messages import fetch, produce

PRODUCE_VERSION, FETCH_VERSION = 9, 12
BATCH = bytes(range(256)) * 4
SHAPES = {"1 x 1": (1, 1), "10 x 10": (10, 10)}
# Many short rounds: on a busy machine a long one is hardly ever left alone.
ROUNDS = 150
SECONDS_PER_ROUND = 0.001
RATIO_MIN = 2.0
DECODERS_IN = "C" if HAS_INTERPRETER else "Python"


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    what: str
    topics_x_partitions: str
    direction: str
    ours_us: float
    kafka_python_us: float
    call_ratio: float
    codec_ratio: float
    pure_ratio: float | None  # there is no other encoder than the one in Python


def produce_request(topics: int, partitions: int) -> Message:
    """A producer's request with one small batch for each partition."""
    return produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            produce.TopicProduceData(
                name=f"orders-{topic}",
                partition_data=[
                    produce.PartitionProduceData(index=index, records=BATCH) for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def produce_response(topics: int, partitions: int) -> Message:
    """The reply to it."""
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=f"orders-{topic}",
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=index, error_code=0, base_offset=1_000_000 + index, log_start_offset=0
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def fetch_request(topics: int, partitions: int) -> Message:
    """A consumer's request without a fetch session."""
    return fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            fetch.FetchTopic(
                topic=f"orders-{topic}",
                partitions=[
                    fetch.FetchPartition(
                        partition=index,
                        current_leader_epoch=3,
                        fetch_offset=1_000_000 + index,
                        partition_max_bytes=1 << 20,
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def fetch_response(topics: int, partitions: int) -> Message:
    """The reply to it, one small batch for each partition."""
    return fetch.FetchResponse(
        throttle_time_ms=0,
        responses=[
            fetch.FetchableTopicResponse(
                topic=f"orders-{topic}",
                partitions=[
                    fetch.PartitionData(
                        partition_index=index,
                        error_code=0,
                        high_watermark=1_000_001 + index,
                        last_stable_offset=1_000_001 + index,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=BATCH,
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


CASES: list[tuple[str, Callable[[int, int], Message], Any, int]] = [
    ("Produce request", produce_request, TheirProduceRequest, PRODUCE_VERSION),
    ("Produce response", produce_response, TheirProduceResponse, PRODUCE_VERSION),
    ("Fetch request", fetch_request, TheirFetchRequest, FETCH_VERSION),
    ("Fetch response", fetch_response, TheirFetchResponse, FETCH_VERSION),
]


def measure() -> list[Figure]:
    """All figures."""
    figures = []
    for what, make, their_class, version in CASES:
        for shape, size in SHAPES.items():
            message = make(*size)
            data = message.encode(version)
            ours, theirs = our_functions(message, data, version), their_functions(their_class, data, version)
            for way in ("encode", "decode"):
                ours_us, theirs_us = best_of_each(ours[way], theirs[way])
                codecs = [ours[f"{way} codec"]] + ([ours["decode pure"]] if way == "decode" else [])
                *codecs_us, their_codec_us = best_of_each(*codecs, theirs[f"{way} codec"])
                codec_ratio, *pure_ratios = [their_codec_us / us for us in codecs_us]
                figures.append(
                    Figure(
                        what=what,
                        topics_x_partitions=shape,
                        direction=way,
                        ours_us=ours_us,
                        kafka_python_us=theirs_us,
                        call_ratio=theirs_us / ours_us,
                        codec_ratio=codec_ratio,
                        pure_ratio=pure_ratios[0] if pure_ratios else None,
                    )
                )
    return figures


Functions = dict[str, Callable[[], object]]


def our_functions(message: Message, data: bytes, version: int) -> Functions:
    """Our two directions, and reading in Python alone."""
    kind = type(message)
    encode, decode, decode_pure = (
        encoder(kind, version),
        decoder(kind, version),
        python_decoder(kind, version),
    )

    def encode_whole() -> bytes:
        chunks: list[Chunk] = []
        encode(message, chunks)
        return b"".join(chunks)  # type: ignore[arg-type]

    return {
        "encode": lambda: message.encode(version),
        "decode": lambda: kind.decode(data, version),
        "encode codec": encode_whole,
        "decode codec": lambda: decode(data, 0, len(data)),
        "decode pure": lambda: decode_pure(data, 0, len(data)),
    }


def their_functions(their_class: Any, data: bytes, version: int) -> Functions:
    """kafka-python's two directions."""
    encode = their_class._struct.compiled_encode_into(version, compact=True, tagged=True)
    decode = their_class._struct.compiled_decode_from(
        version, compact=True, tagged=True, data_class=their_class[None]
    )
    message = their_class.decode(data, version=version)
    message._header = None  # its decoder leaves this unset, and its encoder asks for it
    assert message.encode(version=version) == data, "kafka-python writes other bytes"

    def encode_whole() -> bytes:
        with EncodeBufferPool.acquire() as out:
            encode(message, out)
            return bytes(out.result())

    return {
        "encode": lambda: message.encode(version=version),
        "decode": lambda: their_class.decode(data, version=version),
        "encode codec": encode_whole,
        "decode codec": lambda: decode(memoryview(data), 0),
    }


def best_of_each(*functions: Callable[[], object]) -> list[float]:
    """Microseconds per call of each; rounds alternate, so that a busy machine is unfair to none."""
    timers = [Timer(function, setup=gc.enable) for function in functions]
    counts = [max(1, int(SECONDS_PER_ROUND / (timer.timeit(20) / 20))) for timer in timers]
    best = [float("inf")] * len(timers)
    for _ in range(ROUNDS):
        for side, (timer, count) in enumerate(zip(timers, counts, strict=True)):
            best[side] = min(best[side], timer.timeit(count) / count * 1e6)
    return best


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--check", action="store_true", help="fail if a figure is below the promise")
    options = parser.parse_args()
    figures = measure()
    slow = [figure for figure in figures if figure.call_ratio < RATIO_MIN]
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        head = f"{'message':17} {'topics':8} {'way':7} {'moldau':>10} {'kafka-python':>13}"
        print(f"{head}   call  codec   pure  (best of {ROUNDS}, decoders in {DECODERS_IN})")
        for f in figures:
            times = f"{f.ours_us:7.2f} us {f.kafka_python_us:10.2f} us"
            pure = "" if f.pure_ratio is None else f"{f.pure_ratio:5.2f}"
            ratios = f"{f.call_ratio:5.2f}  {f.codec_ratio:5.2f}  {pure}"
            print(f"{f.what:17} {f.topics_x_partitions:8} {f.direction:7} {times}  {ratios}")
        print(f"{len(figures) - len(slow)} of {len(figures)} are at least {RATIO_MIN} times as fast.")
    return bool(slow) and options.check


if __name__ == "__main__":
    sys.exit(main())
