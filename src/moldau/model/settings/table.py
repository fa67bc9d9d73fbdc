"""The settings that Moldau honours: a row is here only if a test shows that it changes behaviour."""

from dataclasses import replace
from enum import StrEnum
from typing import Final

from moldau.model.settings.node import NODE
from moldau.model.settings.setting import Setting, Synonym, UpdateMode, broker, group, topic
from moldau.model.settings.types import (
    BOOLEAN,
    FLOAT64,
    INT16,
    INT32,
    INT32_MAX,
    INT64,
    INT64_MAX,
    LIST,
    STRING,
    Value,
    choice,
    choices,
)
from moldau.model.settings.validity import at_least, between, items, one_of

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE


class CompressionChoice(StrEnum):
    """With which codec a topic's batches are stored; `producer` keeps the one they came with."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class TimestampChoice(StrEnum):
    """Whose clock stamps a topic's records."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Durability(StrEnum):
    """What has to happen to a record before it counts as committed."""

    FLUSHED = "flushed"
    REPLICATED = "replicated"


class CleanupPolicy(StrEnum):
    """How old records leave a topic's log."""

    COMPACT = "compact"
    DELETE = "delete"


# The topic's settings. One line says what a row is, the next what it does.
# fmt: off

MAX_MESSAGE_BYTES: Final = topic(
    "max.message.bytes", INT32, MIB + 12, at_least(0),
    "The largest record batch that the topic accepts, after compression.",
    synonyms=(Synonym("message.max.bytes"),),
)
MESSAGE_TIMESTAMP_TYPE: Final = topic(
    "message.timestamp.type", choice(TimestampChoice), TimestampChoice.CREATE_TIME, None,
    "Whether records keep their producer's timestamp or get the broker's.",
    synonyms=(Synonym("log.message.timestamp.type"),),
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = topic(
    "message.timestamp.before.max.ms", INT64, INT64_MAX, at_least(0),
    "How far a record's own timestamp may lie in the past.",
    synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = topic(
    "message.timestamp.after.max.ms", INT64, HOUR_MS, at_least(0),
    "How far a record's own timestamp may lie in the future.",
    synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
)

COMPRESSION_TYPE: Final = topic(
    "compression.type", choice(CompressionChoice), CompressionChoice.PRODUCER, None,
    "The codec in which batches are stored.",
    synonyms=(Synonym("compression.type"),),
)
COMPRESSION_GZIP_LEVEL: Final = topic(
    "compression.gzip.level", INT32, -1, between(1, 9, or_else=-1),
    "How hard gzip tries; -1 is its own default.",
    synonyms=(Synonym("compression.gzip.level"),),
)
COMPRESSION_LZ4_LEVEL: Final = topic(
    "compression.lz4.level", INT32, 9, between(1, 17),
    "How hard lz4 tries.",
    synonyms=(Synonym("compression.lz4.level"),),
)
COMPRESSION_ZSTD_LEVEL: Final = topic(
    "compression.zstd.level", INT32, 3, between(-131072, 22),
    "How hard zstd tries.",
    synonyms=(Synonym("compression.zstd.level"),),
)

SEGMENT_BYTES: Final = topic(
    "segment.bytes", INT32, GIB, at_least(MIB),
    "Begin a new segment before one grows larger than this.",
    synonyms=(Synonym("log.segment.bytes"),),
)
SEGMENT_MS: Final = topic(
    "segment.ms", INT64, 7 * DAY_MS, at_least(1),
    "Begin a new segment when the current one is older than this.",
    synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
)
SEGMENT_JITTER_MS: Final = topic(
    "segment.jitter.ms", INT64, 0, at_least(0),
    "Shorten segment.ms by up to this, at random, so that partitions do not all roll at once.",
    synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
)
SEGMENT_INDEX_BYTES: Final = topic(
    "segment.index.bytes", INT32, 10 * MIB, at_least(4),
    "Begin a new segment when an index of the current one is full.",
    synonyms=(Synonym("log.index.size.max.bytes"),),
)
INDEX_INTERVAL_BYTES: Final = topic(
    "index.interval.bytes", INT32, 4 * KIB, at_least(0),
    "Add an index entry after every so many bytes of records.",
    synonyms=(Synonym("log.index.interval.bytes"),),
)

CLEANUP_POLICY: Final = topic(
    "cleanup.policy", choices(CleanupPolicy), (CleanupPolicy.DELETE,), None,
    "Delete old segments, keep the newest record of each key, or both; empty keeps everything.",
    synonyms=(Synonym("log.cleanup.policy"),),
)
RETENTION_MS: Final = topic(
    "retention.ms", INT64, 7 * DAY_MS, at_least(-1),
    "Delete segments whose newest record is older than this; -1 keeps them.",
    synonyms=(
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
)
RETENTION_BYTES: Final = topic(
    "retention.bytes", INT64, -1, None,
    "Delete the oldest segments while a partition would keep this much without them; -1 keeps them.",
    synonyms=(Synonym("log.retention.bytes"),),
)
FILE_DELETE_DELAY_MS: Final = topic(
    "file.delete.delay.ms", INT64, MINUTE_MS, at_least(0),
    "How long a deleted segment's files stay on disk for those who still read them.",
    synonyms=(Synonym("log.segment.delete.delay.ms"),),
)

DELETE_RETENTION_MS: Final = topic(
    "delete.retention.ms", INT64, DAY_MS, at_least(0),
    "How long compaction keeps a tombstone, so that slow readers see the deletion.",
    synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
)
MIN_COMPACTION_LAG_MS: Final = topic(
    "min.compaction.lag.ms", INT64, 0, at_least(0),
    "Leave records alone until they are older than this.",
    synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
)
MAX_COMPACTION_LAG_MS: Final = topic(
    "max.compaction.lag.ms", INT64, INT64_MAX, at_least(1),
    "Compact records that are older than this, however clean the log is.",
    synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
)
MIN_CLEANABLE_DIRTY_RATIO: Final = topic(
    "min.cleanable.dirty.ratio", FLOAT64, 0.5, between(0, 1),
    "Compact when this share of the log has not been compacted yet.",
    synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
)

MIN_INSYNC_REPLICAS: Final = topic(
    "min.insync.replicas", INT32, 1, at_least(1),
    "How many replicas must be in sync for records to be committed.",
    synonyms=(Synonym("min.insync.replicas"),),
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = topic(
    "unclean.leader.election.enable", BOOLEAN, False, None,
    "Whether a replica that may lack committed records leads when no other can.",
    synonyms=(Synonym("unclean.leader.election.enable"),),
)
DURABILITY: Final = topic(
    "moldau.durability", choice(Durability), Durability.FLUSHED, None,
    "Commit records once all in-sync replicas have flushed them, or have them in memory as Kafka does.",
)
FLUSH_MESSAGES: Final = topic(
    "flush.messages", INT64, INT64_MAX, at_least(1),
    "Flush the log after so many records.",
    synonyms=(Synonym("log.flush.interval.messages"),),
)
FLUSH_MS: Final = topic(
    "flush.ms", INT64, INT64_MAX, at_least(0),
    "Flush the log when its oldest unflushed record is older than this.",
    synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
)

# The broker's settings that code asks for by name.

SOCKET_REQUEST_MAX_BYTES: Final = broker(
    "socket.request.max.bytes", INT32, 100 * MIB, at_least(1),
    "The largest request that a connection may send.",
)
MAX_CONNECTIONS: Final = broker(
    "max.connections", INT32, INT32_MAX, at_least(0),
    "How many connections there may be in all.",
    update=_CLUSTER_WIDE,
)
MAX_CONNECTIONS_PER_IP: Final = broker(
    "max.connections.per.ip", INT32, INT32_MAX, at_least(0),
    "How many connections there may be from one address.",
    update=_CLUSTER_WIDE,
)
CONNECTIONS_MAX_IDLE_MS: Final = broker(
    "connections.max.idle.ms", INT64, 600_000, None,
    "Close a connection that has been silent for so long.",
)
FETCH_MAX_BYTES: Final = broker(
    "fetch.max.bytes", INT32, 55 * MIB, at_least(KIB),
    "The most that one response to a fetch holds, whatever the client asks for.",
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = broker(
    "max.incremental.fetch.session.cache.slots", INT32, 1000, at_least(0),
    "How many fetch sessions the broker remembers.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Final = broker(
    "max.request.partition.size.limit", INT32, 2000, at_least(1),
    "The most partitions that one page of described topics holds.",
)
AUTO_CREATE_TOPICS_ENABLE: Final = broker(
    "auto.create.topics.enable", BOOLEAN, True, None,
    "Whether a topic is created when somebody asks for it who wants that.",
)
NUM_PARTITIONS: Final = broker(
    "num.partitions", INT32, 1, at_least(1),
    "How many partitions a topic gets whose creator does not say.",
)
DEFAULT_REPLICATION_FACTOR: Final = broker(
    "default.replication.factor", INT32, 1, None,
    "How many replicas a partition gets if the topic's creator does not say.",
)
DELETE_TOPIC_ENABLE: Final = broker(
    "delete.topic.enable", BOOLEAN, True, None,
    "Whether topics can be deleted.",
)
BROKER_SESSION_TIMEOUT_MS: Final = broker(
    "broker.session.timeout.ms", INT32, 9 * SECOND_MS, None,
    "Fence a broker that sends no heartbeat for so long.",
)
BROKER_HEARTBEAT_INTERVAL_MS: Final = broker(
    "broker.heartbeat.interval.ms", INT32, 2 * SECOND_MS, None,
    "How often a broker sends a heartbeat.",
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = broker(
    "log.retention.check.interval.ms", INT64, 5 * MINUTE_MS, at_least(1),
    "How often the broker looks for segments to delete.",
)
LOG_CLEANER_BACKOFF_MS: Final = broker(
    "log.cleaner.backoff.ms", INT64, 15 * SECOND_MS, at_least(0),
    "How often the broker looks for logs to compact.",
    update=_CLUSTER_WIDE,
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = broker(
    "replica.high.watermark.checkpoint.interval.ms", INT64, 5 * SECOND_MS, None,
    "How often high watermarks, and what else a restart may believe, are written down.",
)
QUOTA_WINDOW_NUM: Final = broker(
    "quota.window.num", INT32, 11, at_least(1),
    "Over how many windows a client's rate is measured.",
)
QUOTA_WINDOW_SIZE_SECONDS: Final = broker(
    "quota.window.size.seconds", INT32, 1, at_least(1),
    "How long each of these windows is.",
)
PRODUCER_ID_EXPIRATION_MS: Final = broker(
    "producer.id.expiration.ms", INT32, DAY_MS, at_least(1),
    "Forget a producer that has written nothing for so long.",
    update=_CLUSTER_WIDE,
)

GROUP_MIN_SESSION_TIMEOUT_MS: Final = broker(
    "group.min.session.timeout.ms", INT32, 6 * SECOND_MS, None,
    "The shortest session timeout that a member of a classic group may ask for.",
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = broker(
    "group.max.session.timeout.ms", INT32, 30 * MINUTE_MS, None,
    "The longest session timeout that a member of a classic group may ask for.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = broker(
    "group.initial.rebalance.delay.ms", INT32, 3 * SECOND_MS, None,
    "How long a classic group that was empty waits for more members after each that joins.",
)
GROUP_MAX_SIZE: Final = broker(
    "group.max.size", INT32, INT32_MAX, at_least(1),
    "How many members a classic group may have.",
)
OFFSET_METADATA_MAX_BYTES: Final = broker(
    "offset.metadata.max.bytes", INT32, 4 * KIB, None,
    "The longest note that may be committed with an offset.",
)
OFFSETS_COMMIT_TIMEOUT_MS: Final = broker(
    "offsets.commit.timeout.ms", INT32, 5 * SECOND_MS, at_least(1),
    "How long a coordinator waits for its records to be committed before it says that they were not.",
)
OFFSETS_LOAD_BUFFER_SIZE: Final = broker(
    "offsets.load.buffer.size", INT32, 5 * MIB, at_least(1),
    "How much of its log a coordinator reads at a time when it loads it.",
)
OFFSETS_RETENTION_MINUTES: Final = broker(
    "offsets.retention.minutes", INT32, 7 * 24 * 60, at_least(1),
    "How long offsets are kept once a group is empty, or if nobody is subscribed, since their commit.",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = broker(
    "offsets.retention.check.interval.ms", INT64, 10 * MINUTE_MS, at_least(1),
    "How often a coordinator looks for offsets that are too old.",
)
OFFSETS_TOPIC_NUM_PARTITIONS: Final = broker(
    "offsets.topic.num.partitions", INT32, 50, at_least(1),
    "How many partitions __consumer_offsets is created with.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = broker(
    "offsets.topic.replication.factor", INT16, 3, at_least(1),
    "How many replicas __consumer_offsets is created with; unless it is set, no more than there are brokers.",
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = broker(
    "offsets.topic.segment.bytes", INT32, 100 * MIB, at_least(1),
    "The size of the segments of __consumer_offsets, small so that it is compacted and loaded quickly.",
)
OFFSETS_TOPIC_COMPRESSION_CODEC: Final = broker(
    "offsets.topic.compression.codec", INT32, 0, None,
    "The codec in which a coordinator writes its records, by its number in batches; 0 is none.",
)

CONSUMER_SESSION_TIMEOUT_MS: Final = group(
    "consumer.session.timeout.ms", INT32, 45 * SECOND_MS, at_least(1),
    "How long a member of a consumer group may be silent before it is cast out.",
    synonyms=(Synonym("group.consumer.session.timeout.ms"),),
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = group(
    "consumer.heartbeat.interval.ms", INT32, 5 * SECOND_MS, at_least(1),
    "How often a member of a consumer group is told to send a heartbeat.",
    synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
)
CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = group(
    "consumer.assignment.interval.ms", INT32, SECOND_MS, at_least(0),
    "How far apart two assignments of a consumer group are at least, so that many changes make one.",
    synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = broker(
    "group.consumer.min.session.timeout.ms", INT32, 45 * SECOND_MS, at_least(1),
    "The shortest session timeout that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = broker(
    "group.consumer.max.session.timeout.ms", INT32, MINUTE_MS, at_least(1),
    "The longest session timeout that a consumer group may be given.",
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = broker(
    "group.consumer.min.heartbeat.interval.ms", INT32, 5 * SECOND_MS, at_least(1),
    "The shortest interval between heartbeats that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = broker(
    "group.consumer.max.heartbeat.interval.ms", INT32, 15 * SECOND_MS, at_least(1),
    "The longest interval between heartbeats that a consumer group may be given.",
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS: Final = broker(
    "group.consumer.min.assignment.interval.ms", INT32, 0, at_least(0),
    "The shortest interval between assignments that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS: Final = broker(
    "group.consumer.max.assignment.interval.ms", INT32, 15 * SECOND_MS, at_least(0),
    "The longest interval between assignments that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_SIZE: Final = broker(
    "group.consumer.max.size", INT32, INT32_MAX, at_least(1),
    "How many members a consumer group may have.",
)
GROUP_CONSUMER_ASSIGNORS: Final = broker(
    "group.consumer.assignors", LIST, ("uniform", "range"), items(may_be_empty=False),
    "The assignors that members of consumer groups may ask for; the first serves groups that ask for none.",
)
GROUP_CONSUMER_MIGRATION_POLICY: Final = broker(
    "group.consumer.migration.policy", STRING, "bidirectional",
    one_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", ignores_case=True),
    "Whether classic groups become consumer groups when such a member joins, and back when the last goes.",
)

# What a group falls back to where nothing is set for it.

_GROUP_DEFAULTS: Final[tuple[Setting[Value], ...]] = (
    broker("group.consumer.assignment.interval.ms", INT32, SECOND_MS, at_least(0), update=_CLUSTER_WIDE),
    broker("group.consumer.heartbeat.interval.ms", INT32, 5 * SECOND_MS, at_least(1)),
    broker("group.consumer.session.timeout.ms", INT32, 45 * SECOND_MS, at_least(1)),
)

# What a topic falls back to where it sets nothing itself.

_TOPIC_DEFAULTS: Final[tuple[Setting[Value], ...]] = (
    broker("compression.gzip.level", INT32, -1, between(1, 9, or_else=-1), update=_CLUSTER_WIDE),
    broker("compression.lz4.level", INT32, 9, between(1, 17), update=_CLUSTER_WIDE),
    broker("compression.type", choice(CompressionChoice), CompressionChoice.PRODUCER, update=_CLUSTER_WIDE),
    broker("compression.zstd.level", INT32, 3, between(-131_072, 22), update=_CLUSTER_WIDE),
    broker("log.cleaner.delete.retention.ms", INT64, DAY_MS, at_least(0), update=_CLUSTER_WIDE),
    broker("log.cleaner.max.compaction.lag.ms", INT64, INT64_MAX, at_least(1), update=_CLUSTER_WIDE),
    broker("log.cleaner.min.cleanable.ratio", FLOAT64, 0.5, between(0, 1), update=_CLUSTER_WIDE),
    broker("log.cleaner.min.compaction.lag.ms", INT64, 0, at_least(0), update=_CLUSTER_WIDE),
    broker("log.cleanup.policy", choices(CleanupPolicy), (CleanupPolicy.DELETE,), update=_CLUSTER_WIDE),
    broker("log.flush.interval.messages", INT64, INT64_MAX, at_least(1), update=_CLUSTER_WIDE),
    broker("log.flush.interval.ms", INT64, None, update=_CLUSTER_WIDE),
    broker("log.flush.scheduler.interval.ms", INT64, INT64_MAX),
    broker("log.index.interval.bytes", INT32, 4 * KIB, at_least(0), update=_CLUSTER_WIDE),
    broker("log.index.size.max.bytes", INT32, 10 * MIB, at_least(4), update=_CLUSTER_WIDE),
    broker("log.message.timestamp.after.max.ms", INT64, HOUR_MS, at_least(0), update=_CLUSTER_WIDE),
    broker("log.message.timestamp.before.max.ms", INT64, INT64_MAX, at_least(0), update=_CLUSTER_WIDE),
    broker("log.message.timestamp.type", choice(TimestampChoice), TimestampChoice.CREATE_TIME,
           update=_CLUSTER_WIDE),
    broker("log.retention.bytes", INT64, -1, update=_CLUSTER_WIDE),
    broker("log.retention.hours", INT32, 168),
    broker("log.retention.minutes", INT32, None),
    broker("log.retention.ms", INT64, None, update=_CLUSTER_WIDE),
    broker("log.roll.hours", INT32, 168, at_least(1)),
    broker("log.roll.jitter.hours", INT32, 0, at_least(0)),
    broker("log.roll.jitter.ms", INT64, None, update=_CLUSTER_WIDE),
    broker("log.roll.ms", INT64, None, update=_CLUSTER_WIDE),
    broker("log.segment.bytes", INT32, GIB, at_least(MIB), update=_CLUSTER_WIDE),
    broker("log.segment.delete.delay.ms", INT64, MINUTE_MS, at_least(0), update=_CLUSTER_WIDE),
    broker("message.max.bytes", INT32, MIB + 12, at_least(0), update=_CLUSTER_WIDE),
    broker("min.insync.replicas", INT32, 1, at_least(1), update=_CLUSTER_WIDE),
    broker("unclean.leader.election.enable", BOOLEAN, False, update=_CLUSTER_WIDE),
)
# fmt: on

# Every constant above that is a row, so that none can be declared and then forgotten.
_NAMED: Final[tuple[Setting[Value], ...]] = tuple(
    row for row in tuple(globals().values()) if isinstance(row, Setting)
)
_FALLS_BACK_TO: Final = {synonym.name: row.name for row in _NAMED for synonym in row.synonyms}

HONOURED: Final = (
    *_NAMED,
    *NODE,
    *(replace(row, doc=f"The default of a topic's {_FALLS_BACK_TO[row.name]}.") for row in _TOPIC_DEFAULTS),
    *(replace(row, doc=f"The default of a group's {_FALLS_BACK_TO[row.name]}.") for row in _GROUP_DEFAULTS),
)
