"""Kafka 4.3 writes the same bytes for the same groups and offsets."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.group.live import GROUP, Live

from moldau.coordinator.group.records import offset_tombstone, version_of
from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.ids import Uuid, uuid_to_text
from moldau.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.internal_logs import GROUP_LOG

TOPIC_ID = Uuid(bytes(range(16)))

# Given the member's id and the time, makes the records that the test makes with our coordinator.
WRITE = """
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupRequestData.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.group.classic.*;

public class Program {
    static void print(CoordinatorRecord record) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        byte[] value = serde.serializeValue(record);
        System.out.println(HexFormat.of().formatHex(serde.serializeKey(record)) + " "
            + (value == null ? "null" : HexFormat.of().formatHex(value)));
    }

    public static void main(String[] args) {
        String memberId = args[0], group = args[1];
        long joinedMs = Long.parseLong(args[2]), committedMs = Long.parseLong(args[3]);
        Uuid topicId = Uuid.fromString(args[4]);
        ClassicGroup classic = new ClassicGroup(new LogContext(), group, ClassicGroupState.EMPTY, Time.SYSTEM,
            1, Optional.of("consumer"), Optional.of("range"), Optional.empty(), Optional.of(joinedMs));
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestProtocol().setName("range").setMetadata(new byte[] {1, 2, 3}));
        classic.add(new ClassicGroupMember(memberId, Optional.of("one"), "ada", "/127.0.0.1", 60000, 10000,
            "consumer", protocols));
        Map<String, byte[]> assignment = Map.of(memberId, new byte[] {9});
        print(GroupCoordinatorRecordHelpers.newGroupMetadataRecord(classic, assignment));
        print(GroupCoordinatorRecordHelpers.newOffsetCommitRecord(group, "t", 3, new OffsetAndMetadata(
            42, OptionalInt.of(7), "note", committedMs, OptionalLong.empty(), topicId)));
        print(GroupCoordinatorRecordHelpers.newOffsetCommitRecord(group, "t", 4, new OffsetAndMetadata(
            43, OptionalInt.empty(), "", committedMs, OptionalLong.of(committedMs + 60000), topicId)));
        print(GroupCoordinatorRecordHelpers.newOffsetCommitTombstoneRecord(group, "t", 3));
        print(GroupCoordinatorRecordHelpers.newGroupMetadataTombstoneRecord(group));
    }
}
"""


def commit(partition: int, offset: int, *, epoch: int, note: str, retention_ms: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=note,
                    )
                ],
            )
        ],
    )


def line(record: CoordinatorRecord) -> str:
    key, value = record
    encoded = "null" if value is None else GROUP_LOG.encode_value(value, version_of(value)).hex()
    return f"{GROUP_LOG.encode_key(key).hex()} {encoded}"


def test_kafka_writes_the_same_records(run_java: Callable[..., str]) -> None:
    live = Live()
    live.ask(commit(3, 42, epoch=7, note="note", retention_ms=-1))
    live.ask(commit(4, 43, epoch=-1, note="", retention_ms=60_000))
    committed_ms = live.circumstances().wall_ms
    joined = live.join(instance_id="one", protocols={"range": bytes((1, 2, 3))})
    live.wait(3_000)
    joined_ms = live.circumstances().wall_ms
    member_id = joined.joined.member_id
    live.sync(member_id, 1, {member_id: b"\x09"}, instance_id="one")
    with_note, with_expiry, group = live.log
    ours = [
        group,
        with_note,
        with_expiry,
        offset_tombstone(GROUP, topic="t", partition=3),
        *live.group().tombstones(),
    ]
    arguments = [member_id, GROUP, str(joined_ms), str(committed_ms), uuid_to_text(TOPIC_ID)]
    assert [line(record) for record in ours] == run_java(WRITE, *arguments).splitlines()
