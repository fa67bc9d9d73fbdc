"""What topics hold, read without Spark; and headers in SQL."""

from moldau.client import connect_sync
from moldau.testing import Cluster
from moldau.wire.records.record import Record

HEADERS = (
    "array(named_struct('key', 'h', 'value', cast('x' as binary)), named_struct('key', 'n', 'value', null))"
)


def read(broker: Cluster, *topics: str) -> list[tuple[str, int, Record]]:
    """Everything in these topics, partition by partition."""
    found: list[tuple[str, int, Record]] = []
    with connect_sync(broker.bootstrap_servers) as client:
        partitions = [
            (each.name, index)
            for each in client.admin.describe_topics(*topics).values()
            for index in each.partitions
        ]
        ends = client.admin.list_offsets(dict.fromkeys(partitions, -1))
        count = sum(end.offset for end in ends.values())
        with client.consumer(partitions, auto_offset_reset="earliest") as consumer:
            while len(found) < count:
                for place, records in consumer.poll(timeout_ms=10_000, records_max=100_000).items():
                    found += [(place.topic, place.partition, record) for record in records]
    return found
