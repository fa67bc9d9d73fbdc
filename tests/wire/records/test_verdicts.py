"""Kafka's own validator and ours come to the same verdict on what a producer sent."""

from collections.abc import Callable
from dataclasses import replace

from wire.records.samples import record

from moldau.model.errors import KafkaError
from moldau.wire.records import header as fields
from moldau.wire.records.batch import encode_batch, seal
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import read_header
from moldau.wire.records.record import Record
from moldau.wire.records.validation import RecordsRejected, TimestampType, TopicRules, accept

NOW = 1_700_000_000_000
RULES = TopicRules(timestamp_before_ms_max=1000, timestamp_after_ms_max=500)

# Reads the topic's rules and a batch in hex from each line; prints the error and the records it is about, or
# the greatest timestamp and what would be appended.
JUDGE = """
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.storage.internals.log.*;

public class Program {
    static class Unmetered implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    }

    public static void main(String[] args) {
        long now = Long.parseLong(args[0]);
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            byte[] batch = HexFormat.of().parseHex(words[2]);
            System.out.println(judge(now, words[0].equals("true"), words[1], batch));
        }
    }

    static String judge(long now, boolean compacted, String timestamps, byte[] batch) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(batch));
        try {
            CompressionType codec = records.batches().iterator().next().compressionType();
            var result = new LogValidator(records, new TopicPartition("t", 0),
                stoppedAt(now), codec, Compression.of(codec).build(), compacted, (byte) 2,
                TimestampType.forName(timestamps), 1000, 500, 0, AppendOrigin.CLIENT
            ).validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(0), new Unmetered(), BufferSupplier.NO_CACHING);
            ByteBuffer appended = result.validatedRecords().buffer();
            byte[] bytes = new byte[appended.remaining()];
            appended.get(bytes);
            return "0 " + result.maxTimestampMs() + " " + HexFormat.of().formatHex(bytes);
        } catch (RecordValidationException e) {
            var indexes = e.recordErrors().stream().map(r -> "" + r.batchIndex);
            return Errors.forException(e.invalidException()).code()
                + " " + indexes.collect(Collectors.joining(",")) + " ";
        } catch (RuntimeException e) {
            return Errors.forException(e).code() + "  ";
        }
    }

    static Time stoppedAt(long now) {
        return (Time) java.lang.reflect.Proxy.newProxyInstance(
            Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, args) -> now);
    }
}
"""


def changed(batch: bytes, **values: int) -> bytes:
    buffer = bytearray(batch)
    buffer[: fields.HEADER_BYTES] = fields.HEADER.pack(*read_header(batch)._replace(**values))
    fields.stamp_crc(buffer, 0)
    return bytes(buffer)


def dated(*timestamps: int) -> bytes:
    return encode_batch([record(index, timestamp) for index, timestamp in enumerate(timestamps)])


SOUND = dated(NOW, NOW + 1, NOW)
THREE = [record(index, NOW) for index in range(3)]
KEYLESS = [Record(index, NOW, None if index == 1 else b"k", b"v") for index in range(3)]
LOG_APPEND_TIME = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
COMPACTED = replace(RULES, is_compacted=True)

CASES = [
    (RULES, SOUND),
    (RULES, changed(SOUND, max_timestamp=5)),
    (RULES, changed(SOUND, count=2)),
    (RULES, changed(SOUND, count=0)),
    (RULES, changed(SOUND, last_offset_delta=7)),
    (RULES, changed(SOUND, last_offset_delta=-1)),
    (RULES, changed(SOUND, attributes=fields.CONTROL_FLAG)),
    (RULES, changed(SOUND, attributes=fields.LOG_APPEND_TIME_FLAG)),
    *(
        (rules, changed(encode_batch([record(0, NOW)], codec=codec), attributes=codec | flag))
        for codec in Codec
        for flag in (fields.LOG_APPEND_TIME_FLAG, fields.DELETE_HORIZON_FLAG)
        for rules in (RULES, LOG_APPEND_TIME)
    ),
    (RULES, changed(SOUND, producer_id=4, producer_epoch=0, base_sequence=-1)),
    (RULES, changed(SOUND, producer_id=4, producer_epoch=0, base_sequence=2**31 - 1)),
    (RULES, dated(NOW - 1000, NOW + 500)),
    (RULES, dated(NOW - 1001, NOW, NOW + 501)),
    (RULES, dated(-1, NOW)),
    (LOG_APPEND_TIME, dated(5, NOW * 2)),
    (COMPACTED, SOUND),
    *((COMPACTED, encode_batch(KEYLESS, codec=codec)) for codec in Codec),
    *((COMPACTED, seal(b"no records, but enough bytes", read_header(SOUND), codec=codec)) for codec in Codec),
    *(
        (COMPACTED, changed(encode_batch(THREE, codec=codec), count=count, last_offset_delta=count - 1))
        for codec in Codec
        for count in (2, 4)
    ),
]


def verdict(rules: TopicRules, batch: bytes) -> str:
    try:
        accepted = accept(batch, rules, now_ms=NOW)
        fields.stamp(accepted.batch, 0, base_offset=0, leader_epoch=0)
        return f"0 {accepted.header.max_timestamp} {accepted.batch.hex()}"
    except RecordsRejected as error:
        return f"{error.code.value} {','.join(str(bad.index) for bad in error.record_errors)} "
    except KafkaError as error:
        return f"{error.code.value}  "


def test_kafka_and_we_accept_and_reject_the_same_batches(run_java: Callable[..., str]) -> None:
    lines = [
        f"{str(rules.is_compacted).lower()} {rules.timestamp_type.value} {batch.hex()}\n"
        for rules, batch in CASES
    ]
    answers = run_java(JUDGE, str(NOW), stdin="".join(lines)).splitlines()
    for (rules, batch), answer in zip(CASES, answers, strict=True):
        assert verdict(rules, batch) == answer, (rules, read_header(batch))
