"""How long a client must wait because it, its user or its address did more than its quota allows.

Bytes and handler time are rates over the last windows (KIP-13, KIP-124): whoever exceeds one is answered at
once, and not heard until the rate has fallen (KIP-219). Changes of metadata come in bursts, so each spends
tokens from a bucket that fills at the allowed rate (KIP-599).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from math import inf
from typing import Final, Generic, TypeVar

from moldau.metadata.image import EntityPart, QuotaEntity
from moldau.metadata.sorted_map import SortedMap
from moldau.model.errors import ErrorCode, KafkaError

# Who has done nothing for so long starts afresh.
SENSOR_IDLE_MS_MAX: Final = 3_600_000

_SWEEP_INTERVAL_MS: Final = 600_000
_THROTTLE_MS_MAX: Final = 2**31 - 1
# A quota of 100 percent is all the time of the one loop that handles requests.
_NANOSECONDS_PER_PERCENT: Final = 10_000_000
_DEFAULT_IP: Final = EntityPart("ip", False, "")
_DEFAULT_CLIENT: Final = EntityPart("client-id", False, "")
_DEFAULT_USER: Final = EntityPart("user", False, "")


class QuotaKind(IntEnum):
    """What is limited as a rate, each by a quota of its own."""

    PRODUCE_BYTES = 0
    FETCH_BYTES = 1
    REQUEST_NANOSECONDS = 2


class MutationsThrottled(KafkaError):
    """THROTTLING_QUOTA_EXCEEDED, with the time after which to try again."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.throttle_ms = throttle_ms


class Quotas:
    """Meters what clients do against the quotas of the cluster; `now_ms` must never fall."""

    def __init__(self, *, window_count: int = 11, window_ms: int = 1000) -> None:
        def rate(limit: float, throttle_ms_max: int) -> _Rate:
            return _Rate(limit, window_count, window_ms, throttle_ms_max)

        # Handler time and connections wait for a window at most: they say little about what comes next.
        self._rates: list[_Limited[_Rate]] = [
            _Limited("producer_byte_rate", lambda limit: rate(limit, _THROTTLE_MS_MAX)),
            _Limited("consumer_byte_rate", lambda limit: rate(limit, _THROTTLE_MS_MAX)),
            _Limited("request_percentage", lambda limit: rate(limit, window_ms), _NANOSECONDS_PER_PERCENT),
        ]
        burst_seconds = window_count * window_ms / 1000
        self._mutations = _Limited("controller_mutation_rate", lambda limit: _Bucket(limit, burst_seconds))
        self._connections = _Limited("connection_creation_rate", lambda limit: rate(limit, window_ms))
        self.is_configured = False
        """Whether any client's rate is limited at all."""
        # The oldest window is about to be dropped, so that much less than all of them can be relied on.
        self._seconds_relied_on = (window_count - 1) * window_ms / 1000

    def configure(self, quotas: SortedMap[QuotaEntity, Mapping[str, float]]) -> None:
        """From now on these quotas hold; what clients did before still counts."""
        for rates in (*self._rates, self._connections):
            rates.configure(quotas)
        self._mutations.configure(quotas)
        self.is_configured = any(limited.limits for limited in self._rates)

    def record(self, kind: QuotaKind, *, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """For how many milliseconds to throttle a client that has done this; 0 if it is within its quota.

        A negative amount takes back what was recorded, as for a fetch that its quota leaves without data.
        """
        limited = self._rates[kind]
        rate = limited.of_client(user, client_id, now_ms) if limited.limits else None
        return 0 if rate is None else rate.record(amount, now_ms)

    def amount_max(self, kind: QuotaKind, *, user: str, client_id: str, now_ms: int) -> float:
        """The most that a client who has done nothing yet can do at once without being throttled."""
        limited = self._rates[kind]
        if not limited.limits:
            return inf
        rate = limited.of_client(user, client_id, now_ms)
        return inf if rate is None else rate.limit * self._seconds_relied_on

    def record_mutations(self, *, user: str, client_id: str, count: int, now_ms: int, is_strict: bool) -> int:
        """Spend tokens for changes of metadata, and say for how many milliseconds to throttle the client.

        A strict quota refuses with MutationsThrottled, once it is exceeded; clients too old for that are only
        throttled. Either way the change that exceeds the quota is still accepted.
        """
        if not self._mutations.limits:
            return 0
        bucket = self._mutations.of_client(user, client_id, now_ms)
        if bucket is None:
            return 0
        if is_strict:
            throttle_ms = bucket.throttle_ms(now_ms)
            if throttle_ms:
                raise MutationsThrottled(throttle_ms)
            bucket.spend(count, now_ms)
            return 0
        bucket.spend(count, now_ms)
        return bucket.throttle_ms(now_ms)

    def record_connection(self, ip: str, now_ms: int) -> int:
        """For how many milliseconds to ignore a new connection before closing it; 0 if it is welcome."""
        if not self._connections.limits:
            return 0
        rate = self._connections.of_address(ip, now_ms)
        if rate is None:
            return 0
        delay_ms = rate.record(1, now_ms)
        if delay_ms:
            # What is refused does not count, or a client that keeps trying would never get in.
            rate.record(-1, now_ms)
        return delay_ms


class _Rate:
    """How much was done in the last windows, each of which begins with the first thing done in it."""

    __slots__ = (
        "_elapsed_seconds_min",
        "_sum",
        "_throttle_ms_max",
        "_window_count",
        "_window_ms",
        "_windows",
        "limit",
        "used_ms",
    )

    def __init__(self, limit: float, window_count: int, window_ms: int, throttle_ms_max: int) -> None:
        self.limit = limit
        self.used_ms = 0
        self._window_count = window_count
        self._window_ms = window_ms
        self._throttle_ms_max = throttle_ms_max
        self._windows: deque[_Window] = deque()
        self._sum: float = 0
        # Before the first window nothing was done, which counts too: else the first request would be a burst.
        # With a single window no time may have passed at all.
        self._elapsed_seconds_min = max((window_count - 1) * window_ms, 1) / 1000

    def record(self, amount: float, now_ms: int) -> int:
        """Add to the current window; the time after which the rate will have fallen to its limit."""
        self.used_ms = now_ms
        windows = self._windows
        if not windows or now_ms - windows[-1].begun_ms >= self._window_ms:
            windows.append(_Window(now_ms))
        if now_ms - windows[0].last_ms >= self._window_count * self._window_ms:
            self._forget(now_ms)
        current = windows[-1]
        current.last_ms = now_ms
        current.amount += amount
        self._sum += amount
        # Nearly everybody is far below the limit, which takes one look to see.
        if self._sum <= self.limit * self._elapsed_seconds_min:
            return 0
        elapsed_ms = now_ms - windows[0].begun_ms
        missing = self._window_count - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        excess = self._sum * 1000 - self.limit * max(elapsed_ms, 1)
        if excess <= 0:
            return 0
        return min(round(excess / self.limit), self._throttle_ms_max)

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        while now_ms - windows[0].last_ms >= self._window_count * self._window_ms:
            windows.popleft()
        # Added up anew, so that rounding errors do not pile up.
        self._sum = sum(window.amount for window in windows)


class _Window:
    __slots__ = ("amount", "begun_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.amount: float = 0


class _Bucket:
    """Tokens that come back at the rate of the limit, up to as many as come in all windows."""

    __slots__ = ("_burst_seconds", "_tokens", "limit", "used_ms")

    def __init__(self, limit: float, burst_seconds: float) -> None:
        self.limit = limit
        self.used_ms = 0
        self._burst_seconds = burst_seconds
        self._tokens = limit * burst_seconds

    def spend(self, count: int, now_ms: int) -> None:
        """Take so many out, even if there are fewer: a debt must be paid back before the next."""
        self._refill(now_ms)
        self._tokens -= count

    def throttle_ms(self, now_ms: int) -> int:
        """The time after which no token is owed any more."""
        self._refill(now_ms)
        if self._tokens >= 0:
            return 0
        return min(round(-self._tokens / self.limit * 1000), _THROTTLE_MS_MAX)

    def _refill(self, now_ms: int) -> None:
        returned = (now_ms - self.used_ms) / 1000 * self.limit
        self._tokens = min(self._tokens + returned, self.limit * self._burst_seconds)
        self.used_ms = now_ms


Sensor = TypeVar("Sensor", bound=_Rate | _Bucket)
# A user, client or address; None stands where the quota does not tell them apart.
_Whom = tuple[str | None, str | None]


class _Limited(Generic[Sensor]):
    """One kind of quota: its limits, and a sensor for each who has one."""

    __slots__ = ("_found", "_key", "_make", "_scale", "_sensors", "_sweep_ms", "limits")

    def __init__(self, key: str, make: Callable[[float], Sensor], scale: float = 1) -> None:
        self.limits: dict[QuotaEntity, float] = {}
        self._key = key
        self._make = make
        self._scale = scale
        self._sensors: dict[_Whom, Sensor] = {}
        # Which sensor is whose, None for those without a quota, so that it is looked for only once.
        self._found: dict[_Whom, Sensor | None] = {}
        self._sweep_ms = 0

    def configure(self, quotas: SortedMap[QuotaEntity, Mapping[str, float]]) -> None:
        self.limits = {
            tuple(_normal(part) for part in entity): values[self._key] * self._scale
            for entity, values in quotas.items()
            if self._key in values
        }
        self._found.clear()
        if not self.limits:
            self._sensors.clear()

    def of_client(self, user: str, client_id: str, now_ms: int) -> Sensor | None:
        whom = (user, client_id)
        if now_ms < self._sweep_ms:
            try:
                return self._found[whom]
            except KeyError:
                pass
        return self._find(whom, _client_entities(user=user, client_id=client_id), now_ms)

    def of_address(self, ip: str, now_ms: int) -> Sensor | None:
        whom = (ip, None)
        if whom in self._found and now_ms < self._sweep_ms:
            return self._found[whom]
        return self._find(whom, (((EntityPart("ip", True, ip),), whom), ((_DEFAULT_IP,), whom)), now_ms)

    def _find(
        self, whom: _Whom, entities: tuple[tuple[QuotaEntity, _Whom], ...], now_ms: int
    ) -> Sensor | None:
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        sensor = None
        for entity, shared_by in entities:
            limit = self.limits.get(entity)
            if limit is not None:
                sensor = self._sensors.get(shared_by)
                if sensor is None:
                    sensor = self._sensors[shared_by] = self._make(limit)
                    sensor.used_ms = now_ms
                sensor.limit = limit
                break
        self._found[whom] = sensor
        return sensor

    def _sweep(self, now_ms: int) -> None:
        self._sweep_ms = now_ms + _SWEEP_INTERVAL_MS
        # Client ids are whatever clients say, so not even those without a quota are remembered forever.
        self._found.clear()
        self._sensors = {
            whom: sensor
            for whom, sensor in self._sensors.items()
            if now_ms - sensor.used_ms < SENSOR_IDLE_MS_MAX
        }


def _client_entities(*, user: str, client_id: str) -> tuple[tuple[QuotaEntity, _Whom], ...]:
    """Who may have a quota for this client, the first of which counts, and who shares that quota."""
    its_user = EntityPart("user", True, user)
    its_id = EntityPart("client-id", True, client_id)
    pair, all_of_user, all_with_id = (user, client_id), (user, None), (None, client_id)
    return (
        ((its_id, its_user), pair),
        ((_DEFAULT_CLIENT, its_user), pair),
        ((its_user,), all_of_user),
        ((its_id, _DEFAULT_USER), pair),
        ((_DEFAULT_CLIENT, _DEFAULT_USER), pair),
        ((_DEFAULT_USER,), all_of_user),
        ((its_id,), all_with_id),
        ((_DEFAULT_CLIENT,), all_with_id),
    )


def _normal(part: EntityPart) -> EntityPart:
    """The part with an address spelt as the network spells it; there are many ways for version 6."""
    if part.type != "ip" or not part.is_named:
        return part
    try:
        return part._replace(name=str(ip_address(part.name)))
    except ValueError:
        # What is no address matches no connection.
        return part
