"""Metadata records as the quorum's log holds them, in the versions of the one metadata.version we write."""

from __future__ import annotations

from moldau.wire.message import MetadataRecord
from moldau.wire.messages.internal_logs import decode_metadata_record, encode_metadata_record


def encode_frame(record: MetadataRecord) -> bytes:
    """The value of the log's record; each record is written in its newest version."""
    return encode_metadata_record(record, type(record).declaration.versions.highest)


def decode_frame(value: bytes) -> MetadataRecord:
    """The record in a value, whatever its version; MalformedMessage or UnknownRecord if there is none."""
    return decode_metadata_record(value)[0]
