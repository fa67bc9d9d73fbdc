"""The names and numbers that identify things, each a type of its own so that none is taken for another."""

import binascii
import re
from typing import Final, NamedTuple, NewType

from moldau.model.errors import ErrorCode, KafkaError

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionIndex = NewType("PartitionIndex", int)
TopicName = NewType("TopicName", str)

NodeId = NewType("NodeId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
# The epoch of a metadata quorum's leader.
Epoch = NewType("Epoch", int)
ClusterId = NewType("ClusterId", str)

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
TransactionalId = NewType("TransactionalId", str)

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
GroupInstanceId = NewType("GroupInstanceId", str)
GenerationId = NewType("GenerationId", int)

# Sixteen raw bytes, as they stand on the wire.
Uuid = NewType("Uuid", bytes)
TopicId = NewType("TopicId", Uuid)
DirectoryId = NewType("DirectoryId", Uuid)

ZERO_UUID: Final = Uuid(bytes(16))
METADATA_TOPIC_ID: Final = TopicId(Uuid((1).to_bytes(16, "big")))
DIRECTORY_MIGRATING: Final = DirectoryId(ZERO_UUID)
DIRECTORY_UNASSIGNED: Final = DirectoryId(Uuid((1).to_bytes(16, "big")))
DIRECTORY_LOST: Final = DirectoryId(Uuid((2).to_bytes(16, "big")))
RESERVED_UUID_COUNT: Final = 100

SEQUENCE_MAX: Final = 2**31 - 1
TOPIC_NAME_LENGTH_MAX: Final = 249

_UUID_BYTES = 16
_UUID_TEXT_LENGTH = 22
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class TopicPartition(NamedTuple):
    """One partition of a topic, by the topic's name; sorts by name, then by number."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(uuid: Uuid) -> str:
    """A uuid in Kafka's spelling: 22 characters of URL-safe base64 without padding."""
    assert len(uuid) == _UUID_BYTES, len(uuid)
    padded = binascii.b2a_base64(uuid, newline=False).decode("ascii")
    return padded.rstrip("=").replace("+", "-").replace("/", "_")


def uuid_from_text(text: str) -> Uuid:
    """The uuid that is spelt so, with or without padding; ValueError if none is."""
    bare = text.removesuffix("==")
    if len(bare) != _UUID_TEXT_LENGTH or "+" in bare or "/" in bare:
        raise ValueError(f"{text!r} is not a uuid in URL-safe base64")
    standard = bare.replace("-", "+").replace("_", "/")
    try:
        return Uuid(binascii.a2b_base64(f"{standard}==", strict_mode=True))
    except ValueError as malformed:
        raise ValueError(f"{text!r} is not a uuid in URL-safe base64") from malformed


def uuid_from_random(random: bytes) -> Uuid:
    """A version 4 uuid (RFC 4122) made of 16 random bytes, never one that Kafka would not have made."""
    assert len(random) == _UUID_BYTES, len(random)
    made = bytearray(random)
    made[6] = made[6] & 0x0F | 0x40
    made[8] = made[8] & 0x3F | 0x80
    # A text that starts with "-" looks like an option on a command line, so Kafka makes no such id.
    if made[0] >> 2 == 0b111110:
        made[0] &= 0x7F
    return Uuid(bytes(made))


def is_reserved(uuid: Uuid) -> bool:
    """Whether the uuid is one of those that stand for something special and name no topic or directory."""
    return int.from_bytes(uuid, "big") < RESERVED_UUID_COUNT


def check_topic_name(name: str) -> TopicName:
    """The name, if a topic may bear it; INVALID_TOPIC_EXCEPTION otherwise."""
    if not name:
        wrong = "it is empty"
    elif name in (".", ".."):
        wrong = "'.' and '..' are reserved"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        wrong = f"it has {len(name)} characters, and {TOPIC_NAME_LENGTH_MAX} are allowed"
    elif not _TOPIC_NAME.fullmatch(name):
        wrong = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return TopicName(name)
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name!r} is invalid: {wrong}.")


def topic_collision_key(name: TopicName) -> str:
    """Two topics with the same key must not both exist: metric names do not tell '.' from '_'."""
    return name.replace(".", "_")


def sequence_after(sequence: Sequence, count: int) -> Sequence:
    """The sequence number `count` records later; after the largest comes 0."""
    return Sequence((sequence + count) % (SEQUENCE_MAX + 1))


def partition_for_coordinator(key: str, partition_count: int) -> PartitionIndex:
    """The partition of the internal topic whose leader coordinates this group or transactional id."""
    hashed = _java_hash(key)
    # Java has no positive counterpart of its smallest int; Kafka takes 0 there.
    positive = 0 if hashed == -(2**31) else abs(hashed)
    return PartitionIndex(positive % partition_count)


def _java_hash(text: str) -> int:
    """What Java's String.hashCode gives: base 31 over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
