"""What clients must not send: each gets Kafka's error or a closed connection, and nobody else notices."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from clients.raw_client import Closed, RawClient, batch_of, fetch_request, produce_request
from clients.rough_broker import RoughBroker

from moldau.model.errors import ErrorCode
from moldau.wire import framing
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.header import RequestHeader
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.produce import ProduceResponse
from moldau.wire.records import header as fields
from moldau.wire.records.batch import encode_batch, seal
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

MIB = 2**20
# What a request may leave behind in the allocator; hostile lengths claim a thousand times as much.
GROWTH_BYTES_MAX = 32 * MIB
REQUEST_BYTES_MAX = 8 * MIB
TOPIC = "sound"
COMPACTED = "compacted"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoughBroker]:
    """One broker for all that follows; the leader epoch of its topics is no longer the first."""
    settings = {"socket.request.max.bytes": str(REQUEST_BYTES_MAX), "message.max.bytes": str(2 * MIB)}
    with RoughBroker(tmp_path_factory.mktemp("bad-input"), settings) as broker:
        with broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
            assert client.create_topic(COMPACTED, configs={"cleanup.policy": "compact"}) == ErrorCode.NONE
        assert broker.stop() == 0
        broker.start()
        yield broker


@pytest.fixture
def client(broker: RoughBroker) -> Iterator[RawClient]:
    """A connection for the one who misbehaves; afterwards the broker must be as well as before."""
    with broker.connect() as client:
        yield client
    broker.check_health()


def frame_content(api_key: int, version: int, body: bytes = b"") -> bytes:
    """A header with a client id and without tags, and whatever comes after it."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="raw"
    )
    return header.encode(1) + body


# ----------------------------------------------------------------------------- frames and headers


@pytest.mark.parametrize("api_key", [-1, 4, 93, 999, 32767])
def test_a_request_for_an_unknown_api_ends_the_connection(client: RawClient, api_key: int) -> None:
    client.send_frame(frame_content(api_key, 0))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_a_request_in_an_unknown_version_ends_the_connection(client: RawClient, version: int) -> None:
    client.send_frame(frame_content(ApiKey.METADATA, version))
    assert client.is_closed_by_broker()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    client.send_frame(frame_content(ApiKey.API_VERSIONS, 99, b"whatever comes"))
    content = client.read_frame()
    assert struct.unpack_from(">i", content) == (7,)
    response = ApiVersionsResponse.decode(content[4:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version) for each in response.api_keys] == [(ApiKey.API_VERSIONS, 0)]
    # The same connection asks again in a version that it has learnt of.
    assert client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("size", [-1, -(2**31), REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(
    broker: RoughBroker, client: RawClient, size: int
) -> None:
    before = broker.memory_bytes()
    client.send(struct.pack(">i", size))
    assert client.is_closed_by_broker()
    assert broker.memory_bytes() - before < GROWTH_BYTES_MAX


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_frame_without_room_for_a_header_ends_the_connection(client: RawClient, size: int) -> None:
    client.send_frame(bytes(size))
    assert client.is_closed_by_broker()


def test_a_client_that_leaves_within_a_frame_is_forgotten(broker: RoughBroker) -> None:
    chunks = framing.encode_request(
        MetadataRequest(topics=None), version=12, correlation_id=1, client_id="raw"
    )
    whole = b"".join(chunks)  # type: ignore[arg-type]  # a request holds no slice of a file
    for length in range(len(whole)):
        with broker.connect() as client:
            client.send(whole[:length])
    broker.check_health()


def test_a_body_that_is_cut_off_ends_the_connection(broker: RoughBroker) -> None:
    with broker.connect() as client:
        content = client.encode(produce_request(TOPIC, batch_of(b"value")), 12)[4:]
    for length in range(8, len(content)):
        with broker.connect() as client:
            client.send_frame(content[:length])
            assert client.is_closed_by_broker(), length
    broker.check_health()


HOSTILE_BODIES = {
    "an array of 2^31 entries": frame_content(ApiKey.METADATA, 4, struct.pack(">i", 2**31 - 1)),
    "an array of fewer than no entries": frame_content(ApiKey.METADATA, 4, struct.pack(">i", -7)),
    "a compact array of 2^31 entries": frame_content(
        ApiKey.METADATA, 12, b"\x00" + b"\xff\xff\xff\xff\x07" + bytes(64)
    ),
    "an array of a million empty structs": frame_content(
        ApiKey.METADATA, 12, b"\x00" + b"\xc1\x84\x3d" + bytes(64)
    ),
    "a string past the end": frame_content(ApiKey.METADATA, 4, struct.pack(">ih", 1, 32767) + b"short"),
    "a string shorter than nothing": frame_content(ApiKey.METADATA, 4, struct.pack(">ih", 1, -2)),
    "a varint that never ends": frame_content(ApiKey.METADATA, 12, b"\x00" + b"\xff" * 200),
    "a varint of six bytes": frame_content(ApiKey.METADATA, 12, b"\x00" + b"\x80" * 5 + b"\x01"),
    "more tags than bytes": frame_content(ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x07"),
    "a name that is not UTF-8": frame_content(ApiKey.METADATA, 4, struct.pack(">ih", 1, 2) + b"\xff\xfe\x00"),
    "records past the end": frame_content(
        ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, -1, 1000, 1) + struct.pack(">h1sii", 1, b"t", 1, 0)
        + struct.pack(">i", 2**31 - 1),
    ),
    "four million groups": frame_content(
        ApiKey.FIND_COORDINATOR, 4, b"\x00\x00" + b"\x81\x80\x80\x02" + b"\x02g" * (4 * 10**6 - 10**5)
    ),
    "a client id past the end": struct.pack(">hhih", ApiKey.METADATA, 4, 7, 32767),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES.keys())
def test_a_body_with_hostile_lengths_ends_the_connection_and_takes_no_memory(
    broker: RoughBroker, client: RawClient, content: bytes
) -> None:
    before = broker.memory_bytes()
    client.send_frame(content)
    assert client.is_closed_by_broker()
    assert broker.memory_bytes() - before < GROWTH_BYTES_MAX


def test_large_frames_that_never_come_take_only_the_memory_of_what_has_come(broker: RoughBroker) -> None:
    before = broker.memory_bytes()
    clients = [broker.connect() for _ in range(50)]
    for client in clients:
        client.send(struct.pack(">i", REQUEST_BYTES_MAX) + bytes(100))
    broker.check_health()
    assert broker.memory_bytes() - before < GROWTH_BYTES_MAX
    for client in clients:
        client.socket.close()
    broker.check_health()


def test_a_client_that_sends_nonsense_again_and_again_fills_no_log(broker: RoughBroker) -> None:
    broker.check_health()
    said_before = broker.log().count("\n")
    for number in range(200):
        with broker.connect() as client:
            client.send_frame(frame_content(999, number))
            assert client.is_closed_by_broker()
    assert broker.log().count("\n") - said_before <= 2
    assert "connection closed" in broker.log()
    broker.check_health()


@pytest.mark.parametrize(
    "api_key",
    [
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    ],
    ids=lambda key: key.api_name,
)
def test_what_nodes_tell_each_other_is_not_heard_from_clients(client: RawClient, api_key: ApiKey) -> None:
    version = spoken_versions(api_key).highest
    client.send_frame(frame_content(api_key, version, bytes(64)))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("name", ["", "-dash", "dot.", "a b", "ü", "a\nb", "a" * 200 + "!"])
def test_software_with_an_odd_name_is_refused(client: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    assert client.ask(request, 3, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST
    request = ApiVersionsRequest(client_software_name="fine", client_software_version="1.0")
    assert client.ask(request, 3, ApiVersionsResponse).error_code == ErrorCode.NONE


# ----------------------------------------------------------------------------- records


def with_sound_crc(batch: bytes, at: int, patch: bytes) -> bytes:
    """The batch with some bytes of its header replaced, and the CRC made to agree."""
    changed = bytearray(batch)
    changed[at : at + len(patch)] = patch
    fields.stamp_crc(changed, 0)
    return bytes(changed)


def resealed(batch: bytes, **changes: int) -> bytes:
    """The batch with other fields in its header."""
    header = fields.read_header(batch)._replace(**changes)
    return seal(batch[fields.HEADER_BYTES :], header, codec=Codec.NONE)


SOUND = batch_of(b"one", b"two")
MAGIC_AT = 16
REFUSED_BATCHES = {
    "a wrong CRC": (SOUND[:-1] + bytes([SOUND[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "a cut": (SOUND[:-1], ErrorCode.CORRUPT_MESSAGE),
    "only a header's beginning": (SOUND[:20], ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (SOUND[:MAGIC_AT] + b"\x00" + SOUND[MAGIC_AT + 1 :], ErrorCode.INVALID_RECORD),
    "magic 1": (SOUND[:MAGIC_AT] + b"\x01" + SOUND[MAGIC_AT + 1 :], ErrorCode.INVALID_RECORD),
    "magic 3": (SOUND[:MAGIC_AT] + b"\x03" + SOUND[MAGIC_AT + 1 :], ErrorCode.INVALID_RECORD),
    "the control bit": (
        resealed(SOUND, attributes=fields.CONTROL_FLAG),
        ErrorCode.INVALID_RECORD,
    ),
    "two batches": (SOUND + SOUND, ErrorCode.INVALID_RECORD),
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "null for records": (None, ErrorCode.INVALID_RECORD),
    "no records": (resealed(SOUND, count=0, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "fewer records than it claims": (
        resealed(SOUND, count=3, last_offset_delta=2),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than it claims": (
        resealed(SOUND, count=1, last_offset_delta=0),
        ErrorCode.INVALID_RECORD,
    ),
    "2^31 records": (
        resealed(SOUND, count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown codec": (
        with_sound_crc(SOUND, fields.ATTRIBUTES_AT, b"\x00\x07"),
        ErrorCode.INVALID_RECORD,
    ),
    "a base offset": (resealed(SOUND, base_offset=7), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (
        resealed(SOUND, producer_id=7, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "more bytes than the topic takes": (batch_of(bytes(2 * MIB)), ErrorCode.MESSAGE_TOO_LARGE),
    "a time far ahead": (
        encode_batch([Record(0, time.time_ns() // 1_000_000 + 2 * 3_600_000, b"k", b"v")]),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize(("batch", "code"), REFUSED_BATCHES.values(), ids=REFUSED_BATCHES.keys())
def test_a_batch_that_is_not_sound_is_refused(
    client: RawClient, batch: bytes | None, code: ErrorCode
) -> None:
    response = client.produce(TOPIC, batch)
    assert (ErrorCode(response.error_code), response.base_offset) == (code, -1)
    assert client.produce(TOPIC, SOUND).error_code == ErrorCode.NONE


def test_records_without_keys_are_named_when_a_compacted_topic_refuses_them(client: RawClient) -> None:
    now_ms = time.time_ns() // 1_000_000
    keys = (b"a", None, b"b", None)
    batch = encode_batch([Record(index, now_ms, key, b"value") for index, key in enumerate(keys)])
    response = client.produce(COMPACTED, batch)
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in response.record_errors] == [1, 3]
    assert client.produce(COMPACTED, SOUND).error_code == ErrorCode.NONE


def bomb(codec: Codec, inflated_bytes: int) -> bytes:
    """A small batch whose one record inflates to very many bytes."""
    now_ms = time.time_ns() // 1_000_000
    record = Record(0, now_ms, b"key", bytes(inflated_bytes))
    return encode_batch([record], codec=codec)


@pytest.mark.parametrize(
    "codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY], ids=lambda codec: codec.name
)
def test_a_decompression_bomb_takes_no_more_memory_than_is_allowed(broker: RoughBroker, codec: Codec) -> None:
    # Neither lz4 nor snappy fits a gigabyte of zeroes into what a topic takes.
    batch = bomb(codec, {Codec.LZ4: 400 * MIB, Codec.SNAPPY: 40 * MIB}.get(codec, 1024 * MIB))
    with broker.connect("bomber") as bomber, broker.connect("bystander") as bystander:
        bystander.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        broker.forget_memory_peak()
        before = broker.memory_bytes()
        has_exploded = threading.Event()
        codes: list[int] = []

        def throw() -> None:
            codes.append(bomber.produce(COMPACTED, batch).error_code)
            has_exploded.set()

        thread = threading.Thread(target=throw)
        thread.start()
        while not has_exploded.is_set():
            bystander.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        thread.join()
        # What snappy can hide in a megabyte is not too much.
        expected = ErrorCode.NONE if codec is Codec.SNAPPY else ErrorCode.MESSAGE_TOO_LARGE
        assert [ErrorCode(code) for code in codes] == [expected]
        assert broker.memory_bytes_peak() - before < 512 * MIB
    broker.check_health()


# ----------------------------------------------------------------------------- requests that make no sense


@pytest.mark.parametrize("acks", [7, 2, -2, 32767])
def test_acks_that_mean_nothing_are_refused(client: RawClient, acks: int) -> None:
    response = client.produce(TOPIC, SOUND, acks=acks)
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUIRED_ACKS


def test_an_error_without_acks_ends_the_connection(client: RawClient) -> None:
    client.send(client.encode(produce_request("nowhere", SOUND, acks=0), 12, is_answered=False))
    assert client.is_closed_by_broker()


def test_without_acks_nothing_is_answered(client: RawClient) -> None:
    client.send(client.encode(produce_request(TOPIC, SOUND, acks=0), 12, is_answered=False))
    assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).topics == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a" * 250, "a\x00b", "../../etc"])
def test_a_topic_with_an_invalid_name_is_not_created(client: RawClient, name: str) -> None:
    assert ErrorCode(client.create_topic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "-1"),
        ("max.message.bytes", "9" * 400),
    ],
)
def test_a_topic_with_an_invalid_setting_is_not_created(client: RawClient, name: str, value: str) -> None:
    assert ErrorCode(client.create_topic("configured", configs={name: value})) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("partitions", [0, -2, 2**31 - 1])
def test_a_topic_with_an_impossible_number_of_partitions_is_not_created(
    broker: RoughBroker, client: RawClient, partitions: int
) -> None:
    before = broker.memory_bytes()
    assert client.create_topic("wide", partitions=partitions) != ErrorCode.NONE
    assert broker.memory_bytes() - before < GROWTH_BYTES_MAX


def fetch_code(client: RawClient, **asked: int) -> ErrorCode:
    response = client.ask(fetch_request(TOPIC, **asked), 12, FetchResponse)
    if response.error_code:
        return ErrorCode(response.error_code)
    return ErrorCode(response.responses[0].partitions[0].error_code)


def test_a_fetch_session_that_is_not_there_is_not_found(client: RawClient) -> None:
    code = fetch_code(client, session_id=12345, session_epoch=1)
    assert code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_session_is_used_in_its_order_and_by_its_owner(
    broker: RoughBroker, client: RawClient
) -> None:
    made = client.ask(fetch_request(TOPIC, session_epoch=0), 12, FetchResponse)
    assert made.session_id > 0
    assert (
        fetch_code(client, session_id=made.session_id, session_epoch=2)
        is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )
    with broker.connect("a stranger") as stranger:
        code = fetch_code(stranger, session_id=made.session_id, session_epoch=1)
    assert code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetch_code(client, session_id=made.session_id, session_epoch=1) is ErrorCode.NONE


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**62])
def test_a_fetch_outside_of_the_log_is_out_of_range(client: RawClient, offset: int) -> None:
    assert fetch_code(client, offset=offset) is ErrorCode.OFFSET_OUT_OF_RANGE


LEADER_EPOCHS = {
    0: ErrorCode.FENCED_LEADER_EPOCH,
    2**31 - 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    -1: ErrorCode.NONE,
}


@pytest.mark.parametrize(("epoch", "code"), LEADER_EPOCHS.items())
def test_a_fetch_that_knows_another_leader_is_told_so(client: RawClient, epoch: int, code: ErrorCode) -> None:
    assert fetch_code(client, leader_epoch=epoch) is code


@pytest.mark.parametrize(("epoch", "code"), LEADER_EPOCHS.items())
def test_who_lists_offsets_and_knows_another_leader_is_told_so(
    client: RawClient, epoch: int, code: ErrorCode
) -> None:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
    response = client.ask(request, 7, ListOffsetsResponse)
    assert ErrorCode(response.topics[0].partitions[0].error_code) is code


# ----------------------------------------------------------------------------- pipelines


def test_replies_to_requests_of_one_packet_come_in_their_order(client: RawClient) -> None:
    end = client.produce(TOPIC, SOUND).base_offset + 2
    began = time.monotonic()
    client.send(
        client.encode(produce_request(TOPIC, SOUND), 12)
        + client.encode(fetch_request(TOPIC, offset=end + 2, max_wait_ms=500, min_bytes=1), 12)
        + client.encode(MetadataRequest(topics=[]), 12)
        + client.encode(produce_request(TOPIC, SOUND), 12)
        + client.encode(ApiVersionsRequest(), 0)
    )
    assert client.read(ProduceResponse).responses[0].partition_responses[0].base_offset == end
    fetched = client.read(FetchResponse)
    # The second batch waits behind the fetch, so that the fetch cannot have seen it.
    assert not fetched.responses[0].partitions[0].records
    assert time.monotonic() - began > 0.4
    client.read(MetadataResponse)
    assert client.read(ProduceResponse).responses[0].partition_responses[0].base_offset == end + 2
    client.read(ApiVersionsResponse)


def test_what_was_asked_before_nonsense_is_still_answered(client: RawClient) -> None:
    client.send(
        client.encode(ApiVersionsRequest(), 0)
        + client.encode(MetadataRequest(topics=[]), 12)
        + struct.pack(">i", -1)
    )
    client.read(ApiVersionsResponse)
    client.read(MetadataResponse)
    with pytest.raises(Closed):
        client.read_frame()
