"""Other implementations read the batches we write, and we read theirs."""

from collections.abc import Callable
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.codec
import kafka.record.default_records as kafka_python_records
import pytest
from wire.records.samples import records_of

from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

RECORDS = records_of(3000)  # several blocks of every codec
CODECS = list(Codec)

# Kafka's own classes: reads batches as hex, one a line, and writes each again with the same codec.
REWRITE = """
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.*;

public class Program {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            byte[] line = HexFormat.of().parseHex(lines.nextLine());
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(line)).batches()) {
                batch.ensureValid();
                Compression codec = Compression.of(batch.compressionType()).build();
                List<SimpleRecord> records = new ArrayList<>();
                for (org.apache.kafka.common.record.internal.Record record : batch) {
                    record.ensureValid();
                    records.add(new SimpleRecord(record));
                }
                SimpleRecord[] same = records.toArray(new SimpleRecord[0]);
                ByteBuffer written = MemoryRecords.withRecords(codec, same).buffer();
                byte[] bytes = new byte[written.remaining()];
                written.get(bytes);
                System.out.println(HexFormat.of().formatHex(bytes));
            }
        }
    }
}
"""


def fields_of(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    batch = aiokafka_records.DefaultRecordBatch(encode_batch(RECORDS, codec=codec))
    assert batch.validate_crc()
    assert [fields_of(record) for record in batch] == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_the_batches_of_aiokafka(codec: Codec) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10**7)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    header, records = decode_batch(bytes(builder.build()))
    assert (header.codec, records) == (codec, RECORDS)


def skip_unless_kafka_python_has(codec: Codec) -> None:
    if codec is not Codec.NONE and not getattr(kafka.codec, f"has_{codec.name.lower()}")():
        pytest.skip(f"kafka-python needs another package for {codec.name}")


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_our_batches(codec: Codec) -> None:
    skip_unless_kafka_python_has(codec)
    batch = kafka_python_records.DefaultRecordBatch(encode_batch(RECORDS, codec=codec))
    assert batch.validate_crc()
    assert [fields_of(record) for record in batch] == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_the_batches_of_kafka_python(codec: Codec) -> None:
    skip_unless_kafka_python_has(codec)
    builder = kafka_python_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10**7,
    )
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    header, records = decode_batch(bytes(builder.build()))
    assert (header.codec, records) == (codec, RECORDS)


def test_kafka_itself_reads_our_batches_and_we_read_those_it_writes(run_java: Callable[..., str]) -> None:
    batches = [encode_batch(RECORDS, codec=codec) for codec in CODECS]
    answers = run_java(REWRITE, stdin="".join(batch.hex() + "\n" for batch in batches)).split()
    for codec, answer in zip(CODECS, answers, strict=True):
        header, records = decode_batch(bytes.fromhex(answer))
        assert (header.codec, records) == (codec, RECORDS)
    assert bytes.fromhex(answers[0]) == batches[0]
