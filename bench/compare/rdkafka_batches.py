"""librdkafka's own producer through its C interface, so that Python adds nothing to what a message costs.

`confluent-kafka` brings the library, and calls it once per message, which takes longer than most brokers
need. `rd_kafka_produce_batch` takes a whole array, and everything behind it is as in any application:
librdkafka's threads, its queue, its batches, its defaults.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from functools import cache

import numpy as np

from moldau.bench.payloads import NUMBER, value

_PRODUCER = 0
_COPY = 0x2
_QUEUE_FULL = -184
_UNASSIGNED = -1
_CONF_OK = 0
_CHUNK = 10_000


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL:
    """librdkafka, as confluent-kafka has loaded it."""
    from confluent_kafka import cimpl

    # Symbols are looked for in what a library depends on, too.
    found = ctypes.CDLL(cimpl.__file__)
    found.rd_kafka_conf_new.restype = ctypes.c_void_p
    found.rd_kafka_conf_set.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    ]
    found.rd_kafka_new.restype = ctypes.c_void_p
    found.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    found.rd_kafka_topic_new.restype = ctypes.c_void_p
    found.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    found.rd_kafka_topic_destroy.argtypes = [ctypes.c_void_p]
    found.rd_kafka_produce_batch.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    ]
    found.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    found.rd_kafka_outq_len.argtypes = [ctypes.c_void_p]
    found.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    return found


class BatchProducer:
    """One producer of numbered records for one topic; a partition of -1 lets librdkafka choose."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        value_bytes: int,
        settings: Mapping[str, str] | None = None,
        partition: int = _UNASSIGNED,
    ) -> None:
        self._library = library()
        self._partition = partition
        why = ctypes.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        for name, text in {"bootstrap.servers": bootstrap_servers, **(settings or {})}.items():
            done = self._library.rd_kafka_conf_set(conf, name.encode(), text.encode(), why, len(why))
            if done != _CONF_OK:
                raise ValueError(why.value.decode())
        self._handle = self._library.rd_kafka_new(_PRODUCER, conf, why, len(why))
        if not self._handle:
            raise ValueError(why.value.decode())
        self._topic = self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        # librdkafka copies what it takes, so that this memory is filled again for the next messages.
        self._values = np.frombuffer(value(0, value_bytes) * _CHUNK, np.uint8).copy()
        self._values = self._values.reshape(_CHUNK, value_bytes)
        self._messages = (Message * _CHUNK)()
        for index in range(_CHUNK):
            self._messages[index].payload = self._values.ctypes.data + index * value_bytes
            self._messages[index].len = value_bytes

    def produce(self, numbers: range, *, timeout_s: float) -> None:
        """Hand over records, waiting while librdkafka's queue is full."""
        deadline = time.monotonic() + timeout_s
        for first in range(numbers.start, numbers.stop, _CHUNK):
            count = min(_CHUNK, numbers.stop - first)
            ordered = np.arange(first, first + count, dtype=f">u{NUMBER.size}")
            self._values[:count, : NUMBER.size] = ordered.view(np.uint8).reshape(count, NUMBER.size)
            done = 0
            while done < count:
                # Messages behind one that found no room are not tried, so that their order stays.
                begin = ctypes.byref(self._messages, done * ctypes.sizeof(Message))
                taken = self._library.rd_kafka_produce_batch(
                    self._topic, self._partition, _COPY, begin, count - done
                )
                done += taken
                if done < count:
                    if self._messages[done].err != _QUEUE_FULL:
                        raise RuntimeError(f"librdkafka refuses a message: {self._messages[done].err}")
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"librdkafka's queue is still full after {timeout_s:g} s")
                    time.sleep(0.001)

    def flush(self, *, timeout_s: float) -> None:
        """Wait until everything was acknowledged, or given up."""
        self._library.rd_kafka_flush(self._handle, int(timeout_s * 1000))
        left = self._library.rd_kafka_outq_len(self._handle)
        if left:
            raise TimeoutError(f"{left} messages were not acknowledged within {timeout_s:g} s")

    def close(self) -> None:
        """Let librdkafka go."""
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)
