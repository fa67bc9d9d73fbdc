"""How records become batches, when these are sent, and what is done about each answer."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.accumulator import (
    Accumulator,
    Batch,
    Failed,
    Outcome,
    Split,
    Written,
    record_bytes,
)
from moldau.client.errors import ClientError
from moldau.client.producer import DeliveredRange, PackedDelivery, PackedFailed
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.wire.records import kernel
from moldau.wire.records.batch import decode_batch, pack
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Encoded, Record

PLACE = TopicPartition(TopicName("orders"), PartitionIndex(0))
OTHER = TopicPartition(TopicName("orders"), PartitionIndex(1))


def accumulator(**given: SettingValue) -> Accumulator:
    made = Accumulator(ClientSettings.parse(given))
    made.set_producer(1, 0)
    return made


def introduced(**given: SettingValue) -> Accumulator:
    """The same after a first batch of one record has been written to each partition."""
    made = accumulator(linger_ms=0, batch_size=0, **given)
    for place in (PLACE, OTHER):
        put(made, at=place)
        made.succeeded(made.take(place), base_offset=0, timestamp=None)
    return made


def put(into: Accumulator, value: bytes = b"value", *, at: TopicPartition = PLACE, now_ms: int = 0) -> Batch:
    size = record_bytes(None, value, ())
    return into.append(at, (now_ms, None, value, ()), size=size, now_ms=now_ms)[0]


def put_packed(into: Accumulator, values: list[bytes], *, now_ms: int = 0) -> Batch:
    records = [Record(index, now_ms, None, value) for index, value in enumerate(values)]
    packed = pack(Encoded(kernel.encode(records, 0, now_ms), len(values), now_ms, now_ms), codec=Codec.NONE)
    return into.append_packed(PLACE, packed, now_ms=now_ms)


def values_of(batch: Batch) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch.encoded(Codec.NONE))[1]]


def refuse(
    made: Accumulator, batch: Batch, code: ErrorCode, *, now_ms: int = 0, retry_at_ms: int = 0
) -> None:
    made.failed(batch, ClientError(code), now_ms=now_ms, retry_at_ms=retry_at_ms)


def test_a_batch_is_sent_when_it_has_lingered() -> None:
    made = accumulator(linger_ms=5)
    put(made, now_ms=100)
    assert made.sendable(104) == []
    assert made.next_event_ms(100) == 105
    assert made.sendable(105) == [PLACE]


def test_a_full_batch_is_sent_at_once_and_the_next_record_starts_another() -> None:
    made = accumulator(linger_ms=1_000, batch_size=210)
    batches = [put(made, b"x" * 50) for _ in range(3)]
    assert batches[0] is batches[1] is not batches[2]
    assert made.sendable(0) == [PLACE]
    assert made.take(PLACE) is batches[0]
    assert made.sendable(0) == []


def test_nothing_lingers_while_somebody_is_in_a_hurry() -> None:
    made = accumulator(linger_ms=1_000)
    put(made)
    made.is_hurried = True
    assert made.sendable(0) == [PLACE]


def test_at_most_five_batches_of_a_partition_are_under_way() -> None:
    made = introduced()
    for _ in range(7):
        put(made)
    under_way = []
    while made.sendable(0):
        under_way.append(made.take(PLACE))
    assert [batch.base_sequence for batch in under_way] == [1, 2, 3, 4, 5]
    made.succeeded(under_way[0], base_offset=0, timestamp=None)
    assert made.sendable(0) == [PLACE]


def test_a_refused_batch_is_repeated_alone_and_before_those_behind_it() -> None:
    made = introduced()
    first, second, third = (put(made) for _ in range(3))
    assert [made.take(PLACE), made.take(PLACE)] == [first, second]
    refuse(made, first, ErrorCode.NOT_LEADER_OR_FOLLOWER, retry_at_ms=50)
    assert made.sendable(60) == []
    refuse(made, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, retry_at_ms=50)
    assert made.sendable(49) == []
    assert made.sendable(50) == [PLACE]
    assert made.take(PLACE) is first
    assert made.sendable(50) == []
    made.succeeded(first, base_offset=0, timestamp=None)
    assert made.take(PLACE) is second
    made.succeeded(second, base_offset=1, timestamp=None)
    assert made.take(PLACE) is third
    assert [batch.base_sequence for batch in (first, second, third)] == [1, 2, 3]


def test_a_batch_that_fails_for_good_starts_a_new_epoch_of_its_partition_alone() -> None:
    made = introduced()
    first, second, other = put(made), put(made), put(made, at=OTHER)
    assert (made.take(PLACE), made.take(PLACE), made.take(OTHER)) == (first, second, other)
    refuse(made, first, ErrorCode.INVALID_RECORD)
    assert isinstance(first.outcome, Failed)
    refuse(made, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    made.advance(0)
    assert made.take(PLACE) is second
    assert (second.producer_epoch, second.base_sequence) == (1, 0)
    made.succeeded(other, base_offset=0, timestamp=None)
    again = put(made, at=OTHER)
    assert made.take(OTHER) is again
    assert (again.producer_epoch, again.base_sequence) == (0, 2)


def test_until_the_first_batch_of_an_epoch_is_written_no_other_is_sent() -> None:
    """A broker that knows nothing of a producer takes any sequence number: the second might come first."""
    made = accumulator(batch_size=0, linger_ms=0)
    first, second, third = (put(made) for _ in range(3))
    assert made.take(PLACE) is first
    assert made.sendable(0) == []
    made.succeeded(first, base_offset=0, timestamp=None)
    assert [made.take(PLACE), made.take(PLACE)] == [second, third]


def test_out_of_order_for_the_first_in_line_means_lost_records_and_is_reported() -> None:
    made = accumulator(batch_size=0, linger_ms=0)
    batch = put(made)
    made.take(PLACE)
    refuse(made, batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(batch.outcome, Failed)
    assert batch.outcome.error.advice == "The broker lacks records that it had acknowledged."


def test_a_broker_that_forgot_the_producer_gets_the_batch_again_in_a_new_epoch() -> None:
    made = accumulator(batch_size=0, linger_ms=0)
    batch = put(made)
    made.take(PLACE)
    refuse(made, batch, ErrorCode.UNKNOWN_PRODUCER_ID)
    made.advance(0)
    assert made.take(PLACE) is batch
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_what_may_have_been_written_is_not_sent_in_a_new_epoch_where_it_would_be_written_twice() -> None:
    made = introduced(delivery_timeout_ms=1_000)
    first, second = put(made, now_ms=0), put(made, now_ms=900)
    made.take(PLACE), made.take(PLACE)
    for batch in (first, second):
        refuse(made, batch, ErrorCode.NETWORK_EXCEPTION)
    third = put(made, now_ms=950)
    made.advance(1_000)
    assert isinstance(first.outcome, Failed) and isinstance(second.outcome, Failed)
    assert made.take(PLACE) is third
    assert (third.producer_epoch, third.base_sequence) == (1, 0)


def test_what_was_under_way_behind_a_batch_that_is_given_up_is_not_sent_in_a_new_epoch_either() -> None:
    """Found by seed 233 of the broker's scenario: the doubt came after the gap."""
    made = introduced(delivery_timeout_ms=1_000)
    first, second = put(made, now_ms=0), put(made, now_ms=900)
    made.take(PLACE), made.take(PLACE)
    refuse(made, first, ErrorCode.REQUEST_TIMED_OUT, now_ms=1_000)
    assert isinstance(first.outcome, Failed)
    refuse(made, second, ErrorCode.REQUEST_TIMED_OUT, now_ms=1_001)
    third = put(made, now_ms=1_001)
    made.advance(1_001)
    assert isinstance(second.outcome, Failed)
    assert made.take(PLACE) is third
    assert (third.producer_epoch, third.base_sequence) == (1, 0)
    assert made.unsettled == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)
def test_a_broker_that_can_no_longer_commit_a_batch_may_have_written_it(code: ErrorCode) -> None:
    """Found by seed 89 of the broker's scenario: it was asked to stop while the batch waited for a flush."""
    made = introduced(delivery_timeout_ms=1_000)
    first, second = put(made, now_ms=0), put(made, now_ms=900)
    made.take(PLACE), made.take(PLACE)
    for batch in (first, second):
        refuse(made, batch, code)
    made.advance(1_000)
    assert isinstance(first.outcome, Failed) and isinstance(second.outcome, Failed)


def test_a_batch_that_may_have_been_written_is_not_split_as_its_halves_would_be_new_to_the_broker() -> None:
    made = accumulator(linger_ms=0)
    put(made), put(made)
    batch = made.take(PLACE)
    refuse(made, batch, ErrorCode.NETWORK_EXCEPTION)
    assert made.take(PLACE) is batch
    refuse(made, batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(batch.outcome, Failed)


def test_when_epochs_are_used_up_a_new_producer_id_is_asked_for() -> None:
    made = accumulator(batch_size=0, linger_ms=0)
    made.set_producer(1, 32_767)
    first, second = put(made), put(made)
    made.take(PLACE)
    refuse(made, first, ErrorCode.INVALID_RECORD)
    made.advance(0)
    assert made.needs_producer_id
    made.set_producer(2, 0)
    assert made.take(PLACE) is second
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (2, 0, 0)


def test_a_split_batch_keeps_its_records_order_and_sequence_numbers() -> None:
    made = accumulator(linger_ms=0)
    for number in range(5):
        put(made, b"%d" % number)
    batch = made.take(PLACE)
    refuse(made, batch, ErrorCode.MESSAGE_TOO_LARGE)
    parts = []
    while made.sendable(0):
        part = made.take(PLACE)
        made.succeeded(part, base_offset=0, timestamp=None)
        parts.append((part.base_sequence, [record.value for record in part.records]))
    assert parts == [(0, [b"0", b"1"]), (2, [b"2", b"3", b"4"])]
    assert (made.unsettled, made.held_bytes) == (0, 0)


def test_a_batch_written_before_counts_as_written() -> None:
    made = accumulator(linger_ms=0)
    batch = put(made)
    made.take(PLACE)
    refuse(made, batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert batch.outcome == Written(-1, None)


def test_what_comes_packed_is_a_batch_of_its_own_between_those_before_and_behind_it() -> None:
    made = introduced()
    put(made, b"a")
    put_packed(made, [b"b", b"c"])
    put(made, b"d")
    sent = []
    while made.sendable(0):
        sent.append(made.take(PLACE))
    assert [(batch.base_sequence, values_of(batch)) for batch in sent] == [
        (1, [b"a"]),
        (2, [b"b", b"c"]),
        (4, [b"d"]),
    ]


def test_what_comes_packed_does_not_linger() -> None:
    made = accumulator(linger_ms=1_000)
    put_packed(made, [b"a"], now_ms=100)
    assert made.sendable(100) == [PLACE]


def test_a_repetition_does_not_linger_either() -> None:
    made = accumulator(linger_ms=1_000)
    put(made, now_ms=0)
    batch = made.take(PLACE)
    refuse(made, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, retry_at_ms=50)
    assert made.next_event_ms(10) == 50
    assert made.sendable(50) == [PLACE]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_packed_batch_that_is_too_large_is_split_and_keeps_records_codec_and_sequence_numbers(
    codec: Codec,
) -> None:
    made = accumulator(linger_ms=0)
    records = [Record(n, 10 - n, b"k", b"%d" % n, (("h", None),)) for n in range(5)]
    whole = pack(Encoded(kernel.encode(records, 0, 10), 5, 10, 10), codec=codec)
    delivery = PackedDelivery(made.append_packed(PLACE, whole, now_ms=0))
    held = made.held_bytes
    assert held == whole.size_bytes == len(made.take(PLACE).encoded(Codec.NONE))
    refuse(made, delivery._batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert not delivery.is_settled()
    parts = []
    while made.sendable(0):
        part = made.take(PLACE)
        header, decoded = decode_batch(part.encoded(Codec.NONE))
        parts.append((header.codec, header.base_sequence, header.max_timestamp, decoded))
        made.succeeded(part, base_offset=70 + header.base_sequence, timestamp=None)
    assert parts == [
        (codec, 0, 10, records[:2]),
        (codec, 2, 8, [record._replace(offset=record.offset - 2) for record in records[2:]]),
    ]
    assert (made.unsettled, made.held_bytes) == (0, 0)
    assert delivery.result() == [DeliveredRange(PLACE, 0, 2, 70), DeliveredRange(PLACE, 2, 3, 72)]


def test_of_a_packed_batch_the_records_that_fail_are_told() -> None:
    made = introduced()
    delivery = PackedDelivery(put_packed(made, [b"a", b"b", b"c"]))
    refuse(made, made.take(PLACE), ErrorCode.MESSAGE_TOO_LARGE)
    made.succeeded(made.take(PLACE), base_offset=0, timestamp=None)
    refuse(made, made.take(PLACE), ErrorCode.MESSAGE_TOO_LARGE)
    made.succeeded(made.take(PLACE), base_offset=0, timestamp=None)
    refuse(made, made.take(PLACE), ErrorCode.MESSAGE_TOO_LARGE)
    assert delivery.is_settled()
    with pytest.raises(PackedFailed) as failure:
        delivery.result()
    assert (failure.value.first, failure.value.count) == (2, 1)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_a_batch_is_tried_once_more_than_the_setting_retries_says(retries: int, attempts: int) -> None:
    made = accumulator(linger_ms=0, retries=retries)
    batch = put(made)
    while batch.outcome is None:
        made.take(PLACE)
        refuse(made, batch, ErrorCode.REQUEST_TIMED_OUT)
    assert batch.attempts == attempts


def test_there_is_room_until_buffer_memory_is_used_and_again_once_something_is_settled() -> None:
    made = accumulator(linger_ms=0, buffer_memory=300, batch_size=0)
    assert made.has_room(10_000), "one record is let in, however large"
    batch = put(made, b"x" * 150)
    assert not made.has_room(100)
    made.take(PLACE)
    made.succeeded(batch, base_offset=0, timestamp=None)
    assert made.has_room(100)


# ---------------------------------------------------------------- against a model of a broker


@dataclass
class ModelBroker:
    """One partition's log behind a connection that loses requests and replies."""

    log: list[bytes | None] = field(default_factory=list)
    epoch: int = 0
    expected: int = 0
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def produce(self, batch: Batch) -> ErrorCode:
        if batch.producer_epoch > self.epoch:
            self.epoch, self.expected = batch.producer_epoch, 0
            self.recent.clear()
        if (batch.base_sequence, batch.count, self.epoch) in self.recent:
            return ErrorCode.NONE
        if batch.base_sequence != self.expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.log += values_of(batch)
        self.recent.append((batch.base_sequence, batch.count, self.epoch))
        self.expected += batch.count
        return ErrorCode.NONE


def outcome_of(batch: Batch, index: int) -> Outcome | None:
    while isinstance(batch.outcome, Split):
        batch, index = batch.outcome.find(index)
    return batch.outcome


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *("put", "put", "put packed", "send", "answer", "lose request", "lose reply", "lose replies"),
                *("refuse", "wait", "too large"),
            ]
        ),
        max_size=80,
    )
)
def test_whatever_is_lost_or_refused_the_log_has_each_acknowledged_record_once_and_in_order(
    events: list[str],
) -> None:
    made = accumulator(batch_size=120, linger_ms=0, delivery_timeout_ms=5_000)
    broker = ModelBroker()
    # A connection: what was sent and not answered; once a request is lost, all behind it are lost too.
    wire: deque[Batch] = deque()
    # Where each record is: its batch, and its place in there.
    sent: dict[int, tuple[Batch, int]] = {}
    now_ms = 0

    def drain() -> None:
        made.advance(now_ms)
        while made.sendable(now_ms):
            wire.append(made.take(PLACE))

    def answer_all() -> None:
        while wire:
            batch = wire.popleft()
            code = broker.produce(batch)
            if code == ErrorCode.NONE:
                made.succeeded(batch, base_offset=0, timestamp=None)
            else:
                refuse(made, batch, code, now_ms=now_ms, retry_at_ms=now_ms)

    for event in events:
        now_ms += 1
        match event:
            case "put":
                batch = put(made, b"%d" % len(sent), now_ms=now_ms)
                sent[len(sent)] = batch, batch.count - 1
            case "put packed":
                batch = put_packed(made, [b"%d" % (len(sent) + index) for index in range(3)], now_ms=now_ms)
                sent |= {len(sent) + index: (batch, index) for index in range(3)}
            case "send":
                drain()
            case "answer" if wire:
                batch = wire.popleft()
                code = broker.produce(batch)
                if code == ErrorCode.NONE:
                    made.succeeded(batch, base_offset=0, timestamp=None)
                else:
                    refuse(made, batch, code, now_ms=now_ms, retry_at_ms=now_ms)
            case "lose request" | "lose reply" | "lose replies":
                arrived = {"lose request": 0, "lose reply": 1, "lose replies": len(wire)}[event]
                for batch in [*wire][:arrived]:
                    broker.produce(batch)
                while wire:
                    refuse(
                        made, wire.popleft(), ErrorCode.NETWORK_EXCEPTION, now_ms=now_ms, retry_at_ms=now_ms
                    )
            case "refuse" | "too large" if wire:
                code = ErrorCode.INVALID_RECORD if event == "refuse" else ErrorCode.MESSAGE_TOO_LARGE
                refuse(made, wire.popleft(), code, now_ms=now_ms, retry_at_ms=now_ms)
            case "wait":
                now_ms += 2_000
    made.is_hurried = True
    for _ in range(200):
        drain()
        answer_all()
    assert (made.unsettled, made.held_bytes) == (0, 0)
    written = [int(value or b"") for value in broker.log]
    assert written == sorted(dict.fromkeys(written))
    acknowledged = [number for number, place in sent.items() if isinstance(outcome_of(*place), Written)]
    assert [number for number in acknowledged if number not in written] == []
