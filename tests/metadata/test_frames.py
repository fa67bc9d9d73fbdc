"""Metadata records are framed so that they mean the same to Kafka and to us."""

import pytest
from metadata.test_kafka_log import ARCHIVES, files_of

from moldau.metadata.frames import decode_frame, encode_frame
from moldau.wire.records.batch import decode_batch
from moldau.wire.records.header import iter_headers


@pytest.mark.parametrize("archive", ARCHIVES)
def test_the_records_of_kafkas_own_log_are_the_same_after_we_write_them(archive: str) -> None:
    values = [
        record.value
        for name, data in files_of(archive).items()
        if name.startswith("__cluster_metadata-0/") and name.endswith(".log")
        for position, header in iter_headers(data)
        if not header.is_control
        for record in decode_batch(memoryview(data)[position:])[1]
        if record.value is not None
    ]
    records = [decode_frame(value) for value in values]
    assert records
    assert [decode_frame(encode_frame(record)) for record in records] == records
    # The bytes are not always: where its newer fields say nothing, Kafka writes an older version.
    assert encode_frame(records[0]) == values[0]
