"""What the topics of a group look like, in one number: if it changes, the group is assigned anew."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from moldau.coordinator.group.consumer.racks import racks_of
from moldau.metadata.image import Image
from moldau.metadata.image.topics import Topic
from moldau.model.ids import TopicName

# Which way of hashing this is.
_VERSION: Final = b"\0"


class TopicHashes:
    """The hashes of topics as Kafka 4.3 computes them, each kept until its topic changes."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        """The topic has changed."""
        self._known.pop(topic, None)

    def of_group(self, topics: Iterable[TopicName], image: Image) -> int:
        """The hash of those of the topics, each named once, that exist; 0 if none does."""
        hashes = [
            self._of_topic(image.topics[topic], image) for topic in sorted(topics) if topic in image.topics
        ]
        return _signed_hash(struct.pack(f"<{len(hashes)}q", *hashes)) if hashes else 0

    def _of_topic(self, topic: Topic, image: Image) -> int:
        found = self._known.get(topic.name)
        if found is None:
            found = self._known[topic.name] = topic_hash(topic, image)
        return found


def topic_hash(topic: Topic, image: Image) -> int:
    """The hash of a topic: its id and name, and the racks that hold each of its partitions."""
    high, low = struct.unpack(">qq", topic.id)
    parts = [_VERSION, struct.pack("<qq", high, low), _text(topic.name), _INT.pack(len(topic.partitions))]
    for index, racks in enumerate(racks_of(topic, image)):
        parts.append(_INT.pack(index))
        for rack in racks:
            # Java counts UTF-16 units, of which a text has as many as it takes bytes, halved.
            parts += (_INT.pack(len(rack.encode("utf-16-le")) // 2), _text(rack))
    return _signed_hash(b"".join(parts))


_INT: Final = struct.Struct("<i")


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


def _signed_hash(data: bytes) -> int:
    import xxhash

    hashed = xxhash.xxh3_64_intdigest(data)
    return hashed - 2**64 if hashed >= 2**63 else hashed
