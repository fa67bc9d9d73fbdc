"""Looking up offsets of partitions by time, or at either end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.errors import ClientError, code_of
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """An offset, the timestamp of its record, and the epoch it was written in; -1 where there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


def place_of(pair: tuple[str, int]) -> TopicPartition:
    """A topic and a partition as people write them, typed."""
    return TopicPartition(TopicName(pair[0]), PartitionIndex(pair[1]))


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetFound]:
    """For each partition the first offset at or after a time in ms, or LATEST, EARLIEST or MAX_TIMESTAMP.

    Errors that may pass are waited for up to `timeout_ms`, by default default.api.timeout.ms.
    """

    async def ask(
        connection: BrokerConnection, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetFound | ClientError]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for each in partitions:
            leader = cluster.metadata.leader(each)
            topics.setdefault(each.topic, []).append(
                ListOffsetsPartition(
                    partition_index=each.partition,
                    current_leader_epoch=-1 if leader is None else leader.epoch,
                    timestamp=wanted[each],
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        response = await cluster.ask_at(connection, request, ListOffsetsResponse)
        found: dict[TopicPartition, OffsetFound | ClientError] = {}
        for topic in response.topics:
            for row in topic.partitions:
                place = place_of((topic.name, row.partition_index))
                if row.error_code == ErrorCode.NONE:
                    found[place] = OffsetFound(row.offset, row.timestamp, row.leader_epoch)
                else:
                    found[place] = ClientError(code_of(row.error_code), where=place)
        return found

    return await cluster.ask_leaders(wanted, ask, timeout_ms=timeout_ms)
