"""Incremental fetch sessions: what is read, what is told, and who must make room."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode
from moldau.model.ids import Uuid
from moldau.node.fetch_sessions import EVICTION_MS, FetchContext, FetchSessions, Result, TopicKey
from moldau.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

NAMES = 12
IDS = 13
ID_A = Uuid(b"a" * 16)
Key = tuple[TopicKey, int]


def request(
    partitions: Iterable[Key | tuple[TopicKey, int, int]] = (),
    *,
    session: tuple[int, int] = (0, 0),
    forget: Iterable[Key] = (),
    follower: int = -1,
) -> FetchRequest:
    """A fetch of (topic, partition) or (topic, partition, offset)."""
    topics = []
    for topic, index, *offset in partitions:
        asked = FetchPartition(
            partition=index, fetch_offset=offset[0] if offset else 0, partition_max_bytes=100
        )
        if isinstance(topic, str):
            topics.append(FetchTopic(topic=topic, partitions=[asked]))
        else:
            topics.append(FetchTopic(topic_id=topic, partitions=[asked]))
    forgotten = [
        ForgottenTopic(topic=topic, partitions=[index])
        if isinstance(topic, str)
        else ForgottenTopic(topic_id=topic, partitions=[index])
        for topic, index in forget
    ]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=follower),
        max_wait_ms=500,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=forgotten,
    )


def data(
    index: int,
    *,
    high_watermark: int = 0,
    last_stable_offset: int = 0,
    log_start_offset: int = 0,
    records: bytes | None = None,
    error: ErrorCode = ErrorCode.NONE,
    preferred_replica: int = -1,
    diverging_epoch: int = -1,
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=diverging_epoch),
        aborted_transactions=None,
        preferred_read_replica=preferred_replica,
        records=records,
    )


@dataclass
class Broker:
    """Sessions with the identities that make them readable in a test: the first has id 1."""

    slots_max: int = 10
    now_ms: int = 0
    version: int = NAMES
    sessions: FetchSessions = field(init=False)

    def __post_init__(self) -> None:
        ids: Iterator[int] = iter(range(1, 1_000_000))
        self.sessions = FetchSessions(self.slots_max, lambda: next(ids))

    def begin(self, fetch: FetchRequest, *, owner: str = "ada", version: int | None = None) -> FetchContext:
        version = self.version if version is None else version
        return self.sessions.begin(fetch, version=version, now_ms=self.now_ms, owner=owner)

    def open(self, *partitions: Key, follower: int = -1, owner: str = "ada") -> int:
        """A session for these partitions, which have nothing yet; its id, or 0."""
        context = self.begin(request(partitions, follower=follower), owner=owner)
        assert context.error == ErrorCode.NONE
        context.select([(topic, data(index)) for topic, index in partitions])
        return context.session_id

    def holds(self, session: int, *, epoch: int = 1) -> bool:
        context = self.begin(request(session=(session, epoch)))
        return context.error != ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def keys(context: FetchContext) -> list[Key]:
    return [(topic, asked.partition) for topic, asked in context.partitions]


# --------------------------------------------------------------------------------------- epochs


def test_a_fetch_without_a_session_reads_and_sends_everything_in_the_order_of_the_request() -> None:
    broker = Broker()
    context = broker.begin(request([("b", 1), ("a", 0), ("b", 0)], session=(0, -1)))
    assert keys(context) == [("b", 1), ("a", 0), ("b", 0)]
    results: list[Result] = [("b", data(1)), ("a", data(0)), ("b", data(0))]
    assert context.select(results) == results
    assert (context.error, context.session_id, context.is_incremental) == (ErrorCode.NONE, 0, False)
    assert len(broker.sessions) == 0


def test_the_first_fetch_of_a_session_sends_everything_and_the_next_only_news() -> None:
    broker = Broker()
    first = broker.begin(request([("a", 0), ("b", 0)]))
    assert not first.is_incremental
    results: list[Result] = [("a", data(0)), ("b", data(0))]
    assert first.select(results) == results
    assert first.session_id == 1

    second = broker.begin(request(session=(1, 1)))
    assert (second.is_incremental, second.session_id) == (True, 1)
    assert keys(second) == [("a", 0), ("b", 0)]
    assert second.select([("a", data(0)), ("b", data(0, high_watermark=5))]) == [
        ("b", data(0, high_watermark=5))
    ]
    third = broker.begin(request(session=(1, 2)))
    assert third.select([("a", data(0)), ("b", data(0, high_watermark=5))]) == []


def test_an_increment_changes_positions_adds_partitions_and_forgets_others() -> None:
    broker = Broker()
    broker.open(("a", 0), ("a", 1))
    changed = request([("a", 1, 40), ("b", 0, 7)], session=(1, 1), forget=[("a", 0), ("never", 3)])
    context = broker.begin(changed)
    assert [(topic, asked.partition, asked.fetch_offset) for topic, asked in context.partitions] == [
        ("a", 1, 40),
        ("b", 0, 7),
    ]
    # The new partition is told in full, even if there is nothing in it.
    assert context.select([("a", data(1)), ("b", data(0))]) == [("b", data(0))]


def test_a_session_that_nothing_is_left_of_is_closed() -> None:
    broker = Broker()
    broker.open(("a", 0))
    context = broker.begin(request(session=(1, 1), forget=[("a", 0)]))
    assert (context.error, context.session_id, keys(context)) == (ErrorCode.NONE, 0, [])
    assert len(broker.sessions) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_fetch_closes_the_session_that_it_names(epoch: int) -> None:
    broker = Broker()
    broker.open(("a", 0))
    context = broker.begin(request([("a", 0)], session=(1, epoch)))
    context.select([("a", data(0))])
    assert context.session_id == (0 if epoch == -1 else 2)
    assert not broker.holds(1)


@pytest.mark.parametrize(
    ("session", "version", "owner", "error"),
    [
        ((7, 1), NAMES, "ada", ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((0, 1), NAMES, "ada", ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((1, 1), NAMES, "bob", ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((1, 2), NAMES, "ada", ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((1, -2), NAMES, "ada", ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((1, 1), IDS, "ada", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_fetch_that_does_not_fit_its_session_is_refused_and_leaves_it_as_it_is(
    session: tuple[int, int], version: int, owner: str, error: ErrorCode
) -> None:
    broker = Broker()
    broker.open(("a", 0))
    context = broker.begin(request([("b", 0)], session=session), version=version, owner=owner)
    assert (context.error, context.session_id, keys(context)) == (error, 0, [])
    assert keys(broker.begin(request(session=(1, 1)))) == [("a", 0)]


def test_a_stranger_cannot_close_a_session() -> None:
    broker = Broker()
    broker.open(("a", 0))
    broker.begin(request(session=(1, -1)), owner="bob")
    assert broker.holds(1)


def test_an_epoch_is_good_for_one_fetch() -> None:
    broker = Broker()
    broker.open(("a", 0))
    assert broker.begin(request(session=(1, 1))).error == ErrorCode.NONE
    assert broker.begin(request(session=(1, 1))).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert broker.begin(request(session=(1, 2))).error == ErrorCode.NONE


def test_after_the_last_epoch_comes_the_first() -> None:
    broker = Broker()
    broker.open(("a", 0))
    (session,) = broker.sessions._sessions.values()
    # Nobody fetches two thousand million times in a test.
    session.epoch = 2**31 - 1
    assert broker.begin(request(session=(1, 2**31 - 1))).error == ErrorCode.NONE
    assert broker.begin(request(session=(1, 1))).error == ErrorCode.NONE


def test_a_fetch_that_was_overtaken_while_it_waited_tells_nothing() -> None:
    broker = Broker()
    broker.open(("a", 0))
    waiting = broker.begin(request(session=(1, 1)))
    overtaking = broker.begin(request(session=(1, 2)))
    news: list[Result] = [("a", data(0, high_watermark=5))]
    assert waiting.select(news) == []
    assert (waiting.error, waiting.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert overtaking.select(news) == news


def test_a_fetch_whose_results_were_withheld_tells_them_the_next_time() -> None:
    broker = Broker()
    broker.begin(request([("a", 0)]))
    assert len(broker.sessions) == 0
    broker.open(("a", 0))
    broker.begin(request(session=(1, 1)))
    news: list[Result] = [("a", data(0, high_watermark=5))]
    assert broker.begin(request(session=(1, 2))).select(news) == news


def test_a_session_by_ids_is_kept_apart_from_names() -> None:
    broker = Broker(version=IDS)
    assert broker.open((ID_A, 0), (ID_A, 1)) == 1
    context = broker.begin(request([(ID_A, 1, 9)], session=(1, 1), forget=[(ID_A, 0)]))
    assert keys(context) == [(ID_A, 1)]
    refused = broker.begin(request(session=(1, 2)), version=NAMES)
    assert refused.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_id_that_is_taken_is_drawn_again() -> None:
    ids = iter([5, 5, 5, 6])
    sessions = FetchSessions(10, lambda: next(ids))
    contexts = [sessions.begin(request([("a", 0)]), version=NAMES, now_ms=0, owner="ada") for _ in range(2)]
    for context in contexts:
        context.select([("a", data(0))])
    assert [context.session_id for context in contexts] == [5, 6]


# --------------------------------------------------------------------------------------- news

NEWS = {
    "records": data(0, records=b"batch"),
    "high watermark": data(0, high_watermark=1),
    "last stable offset": data(0, last_stable_offset=1),
    "log start": data(0, log_start_offset=1),
    "error": data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "preferred replica": data(0, preferred_replica=2),
    "diverging epoch": data(0, diverging_epoch=3),
}


@pytest.mark.parametrize("what", NEWS)
def test_everything_that_the_client_must_learn_is_sent(what: str) -> None:
    broker = Broker()
    broker.open(("a", 0))
    assert broker.begin(request(session=(1, 1))).select([("a", data(0, records=b""))]) == []
    assert broker.begin(request(session=(1, 2))).select([("a", NEWS[what])]) == [("a", NEWS[what])]


def test_an_unknown_topic_is_reported_until_it_is_known_and_then_told() -> None:
    broker = Broker()
    unknown: list[Result] = [("a", data(0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, high_watermark=-1))]
    context = broker.begin(request([("a", 0)]))
    context.select([("a", data(0))])
    for epoch in (1, 2, 3):
        assert broker.begin(request(session=(1, epoch))).select(unknown) == unknown
    known: list[Result] = [("a", data(0))]
    assert broker.begin(request(session=(1, 4))).select(known) == known
    assert broker.begin(request(session=(1, 5))).select(known) == []


def test_partitions_that_gave_records_are_served_last_the_next_time() -> None:
    broker = Broker()
    broker.open(("a", 0), ("b", 0), ("c", 0))
    context = broker.begin(request(session=(1, 1)))
    context.select([("a", data(0, records=b"x")), ("b", data(0, high_watermark=4)), ("c", data(0))])
    assert keys(broker.begin(request(session=(1, 2)))) == [("b", 0), ("c", 0), ("a", 0)]


def test_a_busy_partition_does_not_starve_the_others() -> None:
    broker = Broker()
    busy: list[Key] = [("a", 0), ("b", 0), ("c", 0)]
    broker.open(*busy)
    served = []
    for epoch in range(1, 7):
        context = broker.begin(request(session=(1, epoch)))
        first, *rest = keys(context)
        served.append(first)
        # There is room for one batch in each response.
        context.select([(first[0], data(0, records=b"x")), *((topic, data(0)) for topic, _ in rest)])
    assert served == busy * 2


# --------------------------------------------------------------------------------------- room


def test_without_slots_every_fetch_is_a_full_one() -> None:
    assert Broker(slots_max=0).open(("a", 0)) == 0


def test_a_full_cache_gives_no_session_but_answers() -> None:
    broker = Broker(slots_max=1)
    assert broker.open(("a", 0)) == 1
    assert broker.open(("a", 0), ("a", 1)) == 0
    assert broker.holds(1)


def test_a_session_that_is_idle_for_two_minutes_makes_room_for_any() -> None:
    broker = Broker(slots_max=2)
    broker.open(("a", 0), ("a", 1))
    broker.open(("a", 0), ("a", 1))
    broker.now_ms = 1000
    broker.begin(request(session=(1, 1)))
    broker.now_ms = EVICTION_MS - 1
    assert broker.open(("b", 0)) == 0
    broker.now_ms = EVICTION_MS
    assert broker.open(("b", 0)) == 3
    assert not broker.holds(2)
    assert broker.holds(1, epoch=2)
    assert broker.sessions.evicted_count == 1


def test_a_follower_takes_the_place_of_the_smallest_consumer_however_young() -> None:
    broker = Broker(slots_max=3)
    broker.open(("a", 0), ("a", 1))
    broker.open(("a", 0))
    broker.open(("a", 0), follower=1)
    assert broker.open(("b", 0), follower=2) == 4
    assert not broker.holds(2)
    assert broker.open(("b", 0), follower=2) == 5
    assert not broker.holds(1)
    # Only followers are left, and they are young.
    assert broker.open(("b", 0), ("b", 1), follower=2) == 0


def used_until(broker: Broker, session: int, now_ms: int) -> None:
    """Fetch twice, so that the session is old but not idle."""
    for epoch, when_ms in ((1, now_ms - 1000), (2, now_ms)):
        broker.now_ms = when_ms
        assert broker.begin(request(session=(session, epoch))).error == ErrorCode.NONE


def test_an_old_session_makes_room_for_a_larger_one_only() -> None:
    broker = Broker(slots_max=1)
    broker.open(("a", 0), ("a", 1))
    used_until(broker, 1, EVICTION_MS)
    assert broker.open(("b", 0), ("b", 1)) == 0
    assert broker.open(("b", 0), ("b", 1), ("b", 2)) == 2


def test_a_consumer_never_takes_the_place_of_a_follower_that_is_active() -> None:
    broker = Broker(slots_max=1)
    broker.open(("a", 0), follower=1)
    used_until(broker, 1, EVICTION_MS)
    assert broker.open(("b", 0), ("b", 1)) == 0
    assert broker.open(("b", 0), ("b", 1), follower=2) == 2


def test_a_session_that_has_grown_counts_with_its_new_size() -> None:
    broker = Broker(slots_max=1)
    broker.open(("a", 0))
    used_until(broker, 1, EVICTION_MS)
    broker.begin(request([("a", 1), ("a", 2)], session=(1, 3)))
    assert broker.open(("b", 0), ("b", 1)) == 0
    assert broker.open(("b", 0), ("b", 1), ("b", 2), ("b", 3)) == 2


# --------------------------------------------------------------------------------------- a model


@dataclass
class Client:
    """Fetches incrementally, and keeps what it has been told of each partition."""

    broker: Broker
    session: tuple[int, int] = (0, 0)
    wanted: dict[Key, int] = field(default_factory=dict)
    pending: dict[Key, int] = field(default_factory=dict)
    forgotten: list[Key] = field(default_factory=list)
    told: dict[Key, PartitionData] = field(default_factory=dict)

    def want(self, key: Key, offset: int) -> None:
        self.wanted[key] = self.pending[key] = offset
        if key in self.forgotten:
            self.forgotten.remove(key)

    def forget(self, key: Key) -> None:
        if self.wanted.pop(key, None) is not None:
            self.pending.pop(key, None)
            self.forgotten.append(key)

    def reset(self) -> None:
        """Begin again, as after a lost answer."""
        self.session = (self.session[0], 0)

    def fetch(self, results: dict[Key, PartitionData]) -> None:
        is_full = self.session[1] == 0
        named = self.wanted if is_full else self.pending
        asked = [(topic, index, offset) for (topic, index), offset in named.items()]
        forget = [] if is_full else self.forgotten
        context = self.broker.begin(request(asked, session=self.session, forget=forget))
        if context.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session = (0, 0)
            return self.fetch(results)
        assert context.error == ErrorCode.NONE
        assert {(t, p.partition): p.fetch_offset for t, p in context.partitions} == self.wanted
        sent = context.select([(key[0], results[key]) for key in keys(context)])
        if is_full:
            assert len(sent) == len(self.wanted)
            self.told.clear()
        for key in self.forgotten:
            self.told.pop(key, None)
        self.told.update({(topic, told.partition_index): told for topic, told in sent})
        self.pending.clear()
        self.forgotten.clear()
        self.session = (context.session_id, self.session[1] + 1) if context.session_id else (0, 0)
        return None


KEYS: Sequence[Key] = [("a", 0), ("a", 1), ("b", 0)]
OFFSETS = st.integers(0, 2)
ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
# One field at a time: two changes at once would hide that one of them is not noticed.
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["high_watermark", "last_stable_offset", "log_start_offset"]), OFFSETS),
    st.tuples(st.just("error_code"), ERRORS),
)
CHANGES = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(KEYS), OFFSETS),
    st.tuples(st.just("forget"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("happen"), st.sampled_from(KEYS), EVENTS),
    st.tuples(st.sampled_from(["reset", "evict"]), st.none(), st.none()),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 1), st.lists(CHANGES, max_size=3)), max_size=20))
def test_who_fetches_increments_knows_what_a_full_fetch_would_say(
    fetches: list[tuple[int, list[tuple[str, Key, object]]]],
) -> None:
    broker = Broker(slots_max=2)
    clients = [Client(broker), Client(broker)]
    results = {key: data(key[1]) for key in KEYS}
    for client in clients:
        client.want(KEYS[0], 0)
        client.want(KEYS[1], 0)
        client.fetch(results)
    for who, changes in fetches:
        client = clients[who]
        for what, key, value in changes:
            if what == "want":
                assert isinstance(value, int)
                client.want(key, value)
            elif what == "forget":
                client.forget(key)
            elif what == "happen":
                assert isinstance(value, tuple)
                results[key] = copy(results[key])
                setattr(results[key], *value)
            elif what == "reset":
                client.reset()
            else:
                # Two followers take both slots, and leave them again.
                for session in [broker.open(("z", 0), follower=1) for _ in range(2)]:
                    broker.begin(request(session=(session, -1)))
        if client.wanted:
            client.fetch(results)
            assert client.told == {key: results[key] for key in client.wanted}
