"""What the record kernel costs per record, compiled and pure, beside aiokafka's and kafka-python's parsers.

    python bench/records.py [--records 10000] [--value-bytes 90] [--json]

Each figure is the best of several runs, in nanoseconds a record; the contenders take turns, so that a busy
machine slows all of them down alike.
"""

import argparse
import json
import logging
import platform
import time
from collections.abc import Callable
from types import ModuleType

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records

from moldau.wire.records import columns, pure
from moldau.wire.records import kernel as chosen
from moldau.wire.records.batch import encode_batch, payload_of
from moldau.wire.records.header import read_header
from moldau.wire.records.record import Record

BASE_TIMESTAMP = 1_700_000_000_000
Call = Callable[[], object]

TURN_NS = 10_000_000


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--records", type=int, default=10_000, help="records in the batch")
    arguments.add_argument("--value-bytes", type=int, default=90, help="bytes of each value; keys have 10")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--json", action="store_true")
    asked = arguments.parse_args()

    logging.disable(logging.INFO)
    records = [
        Record(index, BASE_TIMESTAMP + index // 3, b"key-%06d" % index, b"v" * asked.value_bytes)
        for index in range(asked.records)
    ]
    figures = measure(contenders(records), asked.rounds, asked.records)
    facts = {"records": asked.records, "value_bytes": asked.value_bytes, "python": platform.python_version()}
    if asked.json:
        print(json.dumps({**facts, "ns_per_record": figures}, indent=2))
        return
    names = ("compiled", "pure", "aiokafka", "kafka-python")
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"{'ns a record':<14}" + "".join(f"{name:>14}" for name in names))
    for task, row in figures.items():
        print(f"{task:<14}" + "".join(f"{row.get(name, ''):>14}" for name in names))


def contenders(records: list[Record]) -> dict[str, dict[str, Call]]:
    """For each task, who does it and how."""
    count = len(records)
    batch = encode_batch(records)
    payload = bytes(payload_of(batch, 0, read_header(batch)))
    run = (payload, count, 0, BASE_TIMESTAMP, None)
    table = columns.to_arrow([run])
    kernels: dict[str, ModuleType] = {"pure": pure}
    if chosen.NAME == "compiled":
        from moldau.wire.records import _kernel

        kernels = {"compiled": _kernel, **kernels}

    def each(make: Callable[[ModuleType], Call]) -> dict[str, Call]:
        return {name: make(kernel) for name, kernel in kernels.items()}

    def with_kernel(kernel: ModuleType, call: Call) -> Call:
        def swapped() -> object:
            original = columns.kernel
            columns.kernel = kernel
            try:
                return call()
            finally:
                columns.kernel = original

        return swapped

    def filled_map(kernel: ModuleType) -> Call:
        offsets = kernel.OffsetMap(2 * count + 1, 2 * count, bytes(16))
        return lambda: offsets.put_all(payload, count, 0)

    return {
        "validate": each(lambda kernel: lambda: kernel.validate(payload, count)),
        "decode": each(lambda kernel: lambda: kernel.decode(payload, count, 0, BASE_TIMESTAMP))
        | {
            "aiokafka": lambda: list(aiokafka_records.DefaultRecordBatch(batch)),
            "kafka-python": lambda: list(kafka_python_records.DefaultRecordBatch(batch)),
        },
        "encode": each(lambda kernel: lambda: kernel.encode(records, 0, BASE_TIMESTAMP))
        | {"aiokafka": lambda: build_aiokafka(records), "kafka-python": lambda: build_kafka_python(records)},
        "to Arrow": each(lambda kernel: with_kernel(kernel, lambda: columns.to_arrow([run]))),
        "from Arrow": each(lambda kernel: with_kernel(kernel, lambda: columns.from_arrow(table))),
        "keys": each(lambda kernel: lambda: kernel.keys(payload, count)),
        "put_all": each(filled_map),
        "find_timestamp": each(lambda kernel: lambda: kernel.find_timestamp(payload, count, 0, 2**62)),
    }


def build_aiokafka(records: list[Record]) -> object:
    """The same batch with aiokafka's builder."""
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    for offset, timestamp, key, value, _, _ in records:
        builder.append(offset, timestamp, key, value, [])
    return builder.build()


def build_kafka_python(records: list[Record]) -> object:
    """The same batch with kafka-python's builder."""
    builder = kafka_python_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for offset, timestamp, key, value, _, _ in records:
        builder.append(offset, timestamp, key, value, [])
    return builder.build()


def measure(tasks: dict[str, dict[str, Call]], rounds: int, count: int) -> dict[str, dict[str, float]]:
    """The best time of each contender, in nanoseconds a record.

    They take turns, so that a busy machine slows all of them down alike; a turn is long enough for a fast one
    to be called several times, the first of which finds the caches full of data of another.
    """
    figures: dict[str, dict[str, float]] = {}
    for task, calls in tasks.items():
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for name, call in calls.items():
                turn_end = time.perf_counter_ns() + TURN_NS
                while (start := time.perf_counter_ns()) < turn_end:
                    result = call()
                    best[name] = min(best[name], (time.perf_counter_ns() - start) / count)
                    del result
        figures[task] = {name: round(value, 1) for name, value in best.items()}
    return figures


if __name__ == "__main__":
    main()
