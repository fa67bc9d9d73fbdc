"""Which partitions a fetch reads and which results it sends, when client and broker remember the last one.

A fetch session (KIP-227) spares both sides what has not changed: the request names only the partitions whose
position is new, the response only those with news. A request says by its session epoch what it wants:

    (any id, -1)   no session; the named one is closed
    (any id, 0)    a new session, and all partitions; the named one is closed
    (id, epoch)    an increment of that session, which must be at that epoch; the next one is one higher

A session is made when its first response is, so that a throttled fetch does not leave one behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final

from moldau.model.errors import ErrorCode
from moldau.model.ids import Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

# A topic as the fetch names it: by name up to version 12, by id from version 13 on.
TopicKey = str | Uuid
Asked = tuple[TopicKey, FetchPartition]
Result = tuple[TopicKey, PartitionData]

# A session that is unused for so long gives way to any other; one that is so old, to a larger one.
EVICTION_MS: Final = 120_000

_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
_TOPIC_IDS_SINCE_VERSION: Final = 13
# No offset, and not the -1 of an unknown one either.
_NEVER_TOLD: Final = -2

# Whether it is a follower's, its number of partitions, its id: whoever sorts first is the first to go.
_Rank = tuple[bool, int, int]


class FetchContext:
    """One fetch: what to read in which order, and what of it to send; this one has no session."""

    __slots__ = ("error", "partitions", "session_id")

    is_incremental: ClassVar[bool] = False

    def __init__(
        self,
        partitions: Sequence[Asked] = (),
        *,
        error: ErrorCode = ErrorCode.NONE,
        session_id: int = _NO_SESSION,
    ) -> None:
        self.partitions = partitions
        # Both are for the response; `select` may change them.
        self.error = error
        self.session_id = session_id

    def select(self, results: list[Result]) -> list[Result]:
        """The results to send, of which the session takes note: call it once, when they are final."""
        return results


class FetchSessions:
    """The fetch sessions of a broker, of which there are at most `slots_max`."""

    def __init__(self, slots_max: int, new_id: Callable[[], int]) -> None:
        self.evicted_count = 0
        self._slots_max = slots_max
        self._new_id = new_id
        # The least recently used comes first.
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        # Sorted, so that a full cache refuses a session without looking at every other.
        self._evictable_by_all: list[_Rank] = []
        self._evictable_by_followers: list[_Rank] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, *, version: int, now_ms: int, owner: Hashable) -> FetchContext:
        """What the request wants; one that does not fit its session has an error and no partitions."""
        epoch = request.session_epoch
        session = self._sessions.get(request.session_id)
        # Ids are not secret enough to let one client disturb the session of another.
        if session is not None and session.owner != owner:
            session = None
        uses_topic_ids = version >= _TOPIC_IDS_SINCE_VERSION

        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            if session is not None:
                self._remove(session)
            asked = _asked(request, uses_topic_ids)
            if epoch == _FINAL_EPOCH:
                return FetchContext(asked)
            is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
            made = _Session(asked, owner, is_follower, uses_topic_ids, now_ms)
            return _FirstFetch(asked, self, made)

        if session is None:
            return FetchContext(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if request.topics or request.forgotten_topics_data:
            session.update(request)
            if not session.partitions:
                self._remove(session)
                return FetchContext()
        session.epoch = epoch + 1 if epoch < _EPOCH_MAX else 1
        self._touch(session, now_ms)
        return _Increment(session)

    def keep(self, session: _Session) -> int:
        """The id under which the session is kept from now on; 0 if there is no room for it."""
        if len(self._sessions) >= self._slots_max and not self._make_room_for(session):
            return _NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session.id = session_id
        self._sessions[session_id] = session
        self._rank(session)
        return session_id

    def _touch(self, session: _Session, now_ms: int) -> None:
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        has_aged = not session.is_old and now_ms - session.made_ms >= EVICTION_MS
        if has_aged or len(session.partitions) != session.ranked_size:
            self._unrank(session)
            session.is_old = session.is_old or has_aged
            self._rank(session)

    def _make_room_for(self, newcomer: _Session) -> bool:
        if not self._sessions:
            return False
        idle_longest = next(iter(self._sessions.values()))
        if newcomer.made_ms - idle_longest.used_ms >= EVICTION_MS:
            evicted = idle_longest
        else:
            candidates = self._evictable_by_followers if newcomer.is_follower else self._evictable_by_all
            if not candidates or (newcomer.is_follower, len(newcomer.partitions), 0) < candidates[0]:
                return False
            evicted = self._sessions[candidates[0][2]]
        self._remove(evicted)
        self.evicted_count += 1
        return True

    def _remove(self, session: _Session) -> None:
        self._unrank(session)
        del self._sessions[session.id]

    def _rank(self, session: _Session) -> None:
        session.ranked_size = len(session.partitions)
        for ranks in self._rankings(session):
            insort(ranks, session.rank)

    def _unrank(self, session: _Session) -> None:
        for ranks in self._rankings(session):
            index = bisect_left(ranks, session.rank)
            assert ranks[index] == session.rank, (ranks[index], session.rank)
            del ranks[index]

    def _rankings(self, session: _Session) -> Sequence[list[_Rank]]:
        if session.is_old:
            return self._evictable_by_all, self._evictable_by_followers
        return () if session.is_follower else (self._evictable_by_followers,)


class _FirstFetch(FetchContext):
    """A full fetch, after whose response there is a session if there is room for it."""

    __slots__ = ("_session", "_sessions")

    def __init__(self, partitions: Sequence[Asked], sessions: FetchSessions, session: _Session) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._session = session

    def select(self, results: list[Result]) -> list[Result]:
        self.session_id = self._sessions.keep(self._session)
        if self.session_id != _NO_SESSION:
            self._session.tell(results)
        return results


class _Increment(FetchContext):
    """A fetch of all partitions of a session, of which those with news are sent."""

    __slots__ = ("_next_epoch", "_session")

    is_incremental = True

    def __init__(self, session: _Session) -> None:
        self.partitions = [each.asked for each in session.partitions.values()]
        self.error = ErrorCode.NONE
        self.session_id = session.id
        self._session = session
        self._next_epoch = session.epoch

    def select(self, results: list[Result]) -> list[Result]:
        if self._session.epoch == self._next_epoch:
            return self._session.tell(results)
        # While this fetch waited, the client gave up on it and sent the next.
        self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.session_id = _NO_SESSION
        return []


class _Session:
    """What a client asks for, and what it has been told."""

    __slots__ = (
        "epoch",
        "id",
        "is_follower",
        "is_old",
        "made_ms",
        "owner",
        "partitions",
        "ranked_size",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self, asked: Sequence[Asked], owner: Hashable, is_follower: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH + 1
        self.owner = owner
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.made_ms = now_ms
        self.used_ms = now_ms
        self.is_old = False
        # In the order in which they are served.
        self.partitions = {(each[0], each[1].partition): _Partition(each) for each in asked}
        self.ranked_size = len(self.partitions)

    @property
    def rank(self) -> _Rank:
        """Its place among those that can be evicted, where it stands until it is ranked again."""
        return self.is_follower, self.ranked_size, self.id

    def update(self, request: FetchRequest) -> None:
        """Take over new positions and new partitions, and drop those that are to be forgotten."""
        for asked in _asked(request, self.uses_topic_ids):
            key = (asked[0], asked[1].partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = _Partition(asked)
            else:
                known.asked = asked
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for partition in forgotten.partitions:
                self.partitions.pop((topic, partition), None)

    def tell(self, results: list[Result]) -> list[Result]:
        """The results with news, which from now on are none."""
        partitions = self.partitions
        news = []
        for result in results:
            topic, data = result
            key = (topic, data.partition_index)
            partition = partitions[key]
            if partition.tell(data):
                news.append(result)
            if data.records:
                # Who was served goes to the end of the line, or a busy partition would starve the others.
                del partitions[key]
                partitions[key] = partition
        return news


class _Partition:
    """One partition of a session: what is asked of it, and the offsets that the client knows."""

    __slots__ = ("asked", "high_watermark", "last_stable_offset", "log_start_offset")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.high_watermark = _NEVER_TOLD
        self.last_stable_offset = _NEVER_TOLD
        self.log_start_offset = _NEVER_TOLD

    def tell(self, data: PartitionData) -> bool:
        """Whether the client does not know this yet."""
        if data.error_code:
            # An error is sent until it is over, and its end is news too.
            self.high_watermark = _NEVER_TOLD
            return True
        if (
            data.high_watermark != self.high_watermark
            or data.last_stable_offset != self.last_stable_offset
            or data.log_start_offset != self.log_start_offset
        ):
            self.high_watermark = data.high_watermark
            self.last_stable_offset = data.last_stable_offset
            self.log_start_offset = data.log_start_offset
            return True
        return bool(data.records) or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0


def _asked(request: FetchRequest, uses_topic_ids: bool) -> list[Asked]:
    if uses_topic_ids:
        return [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    return [(topic.topic, each) for topic in request.topics for each in topic.partitions]
