"""Records of `__share_group_state`."""

from __future__ import annotations

from moldau.wire.message import CoordinatorKey, CoordinatorValue
from moldau.wire.types import Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class ShareSnapshotKey(CoordinatorKey, key=0, versions="0"):
    """The key of a snapshot of a share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(CoordinatorValue, key=0, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


class StateBatch(Struct):
    """The delivery state of a range of offsets."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareUpdateKey(CoordinatorKey, key=1, versions="0"):
    """The key of a change of a share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(CoordinatorValue, key=1, versions="0", flexible="0+"):
    """A change of a share partition since its last snapshot."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch]
