"""Kafka's own metadata log and its own snapshots of it tell the same, read by our image."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.metadata.bootstrap import bootstrap_records
from moldau.metadata.image import Image
from moldau.model.ids import Epoch, Offset
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.internal_logs import decode_metadata_record
from moldau.wire.messages.metadata_records import BeginTransactionRecord, EndTransactionRecord
from moldau.wire.records.batch import decode_batch
from moldau.wire.records.header import iter_headers

GOLDEN = Path(__file__).parents[1] / "golden"
ARCHIVES = ["data-dir.tar.gz", "data-dir-unclean.tar.gz"]
FOLDER = "__cluster_metadata-0/"


def files_of(archive: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO((GOLDEN / archive).read_bytes())) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                found[member.name.removeprefix("./")] = file.read()
        return found


def batches_of(data: bytes) -> Iterator[list[tuple[Offset, MetadataRecord]]]:
    for position, header in iter_headers(data):
        if not header.is_control:
            _, records = decode_batch(memoryview(data)[position:])
            yield [
                (Offset(record.offset), decode_metadata_record(record.value)[0])
                for record in records
                if record.value is not None
            ]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_the_log_up_to_a_snapshot_and_the_snapshot_make_equal_images(archive: str) -> None:
    files = files_of(archive)
    log = [
        batch
        for name, data in sorted(files.items())
        if name.startswith(FOLDER) and name.endswith(".log")
        for batch in batches_of(data)
    ]
    snapshots = {
        name.removeprefix(FOLDER).removesuffix(".checkpoint"): data
        for name, data in sorted(files.items())
        if name.startswith(FOLDER) and name.endswith(".checkpoint")
    }
    assert len(snapshots) > 1
    for name, data in snapshots.items():
        end = Offset(int(name.partition("-")[0]))
        offset, epoch = Offset(end - 1), Epoch(1)
        from_log = Image()
        for batch in log:
            if batch[-1][0] < end:
                from_log, _ = from_log.apply([record for _, record in batch], offset=offset, epoch=epoch)
        records = [record for batch in batches_of(data) for _, record in batch]
        # The first one is what the cluster was formatted with, before the controller wrote a record.
        if end > 0:
            assert len(from_log.brokers) == 1
            assert Image().apply(records, offset=offset, epoch=epoch)[0] == from_log


def test_a_new_cluster_begins_with_the_records_that_kafka_begins_with() -> None:
    files = files_of("data-dir.tar.gz")
    log = next(
        data for name, data in sorted(files.items()) if name.startswith(FOLDER) and name.endswith(".log")
    )
    first = [record for _, record in next(batches_of(log))]
    assert isinstance(first[0], BeginTransactionRecord)
    assert isinstance(first[-1], EndTransactionRecord)
    assert first[1:-1] == bootstrap_records(static={})
