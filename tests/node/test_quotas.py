"""Who is throttled, by which quota, and for how long."""

from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.image import EntityPart, QuotaEntity
from moldau.metadata.sorted_map import SortedMap
from moldau.model.errors import ErrorCode
from moldau.node.quotas import SENSOR_IDLE_MS_MAX, MutationsThrottled, QuotaKind, Quotas

PRODUCE = QuotaKind.PRODUCE_BYTES
NOW = 1_000_000


def whom(**parts: str | None) -> QuotaEntity:
    """`whom(user="ada", client_id=None)`: a user, and the default for all client ids."""
    named = ((kind.replace("_", "-"), name) for kind, name in parts.items())
    return tuple(sorted(EntityPart(kind, name is not None, name or "") for kind, name in named))


def image(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> SortedMap[QuotaEntity, Mapping[str, float]]:
    empty: SortedMap[QuotaEntity, Mapping[str, float]] = SortedMap()
    return empty.changed(dict(quotas))


def configured(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Quotas:
    made = Quotas()
    made.configure(image(quotas))
    return made


def produced_bytes_max(quotas: Quotas, *, user: str, client_id: str) -> float:
    return quotas.amount_max(PRODUCE, user=user, client_id=client_id, now_ms=NOW)


# --------------------------------------------------------------------------------------- whose quota counts

PRECEDENCE: list[tuple[QuotaEntity, float]] = [
    (whom(user="ada", client_id="app"), 1),
    (whom(user="ada", client_id=None), 2),
    (whom(user="ada"), 3),
    (whom(user=None, client_id="app"), 4),
    (whom(user=None, client_id=None), 5),
    (whom(user=None), 6),
    (whom(client_id="app"), 7),
    (whom(client_id=None), 8),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_counts(first: int) -> None:
    quotas = configured({entity: {"producer_byte_rate": limit} for entity, limit in PRECEDENCE[first:]})
    # Ten of the eleven windows can be relied on.
    assert produced_bytes_max(quotas, user="ada", client_id="app") == 10 * PRECEDENCE[first][1]


def test_a_quota_limits_nobody_else_and_nothing_else() -> None:
    quotas = configured({whom(user="ada", client_id="app"): {"producer_byte_rate": 100}})
    assert produced_bytes_max(quotas, user="ada", client_id="app") == 1000
    assert produced_bytes_max(quotas, user="bob", client_id="app") == inf
    assert produced_bytes_max(quotas, user="ada", client_id="other") == inf
    assert quotas.amount_max(QuotaKind.FETCH_BYTES, user="ada", client_id="app", now_ms=NOW) == inf
    assert quotas.record(PRODUCE, user="bob", client_id="app", amount=1e9, now_ms=NOW) == 0
    assert quotas.record(QuotaKind.FETCH_BYTES, user="ada", client_id="app", amount=1e9, now_ms=NOW) == 0


@pytest.mark.parametrize(
    ("entity", "is_shared_by_clients", "is_shared_by_users"),
    [
        (whom(user="ada", client_id=None), False, False),
        (whom(user=None, client_id=None), False, False),
        (whom(user="ada"), True, False),
        (whom(user=None), True, False),
        (whom(client_id="app"), False, True),
        (whom(client_id=None), False, True),
    ],
)
def test_a_quota_is_shared_by_all_whom_it_does_not_tell_apart(
    entity: QuotaEntity, is_shared_by_clients: bool, is_shared_by_users: bool
) -> None:
    quotas = configured({entity: {"producer_byte_rate": 100}})
    assert quotas.record(PRODUCE, user="ada", client_id="app", amount=2000, now_ms=NOW) == 10_000
    of_other_client = quotas.record(PRODUCE, user="ada", client_id="other", amount=0, now_ms=NOW)
    of_other_user = quotas.record(PRODUCE, user="bob", client_id="app", amount=0, now_ms=NOW)
    assert of_other_client == (10_000 if is_shared_by_clients else 0)
    assert of_other_user == (10_000 if is_shared_by_users else 0)


# --------------------------------------------------------------------------------------- rates


def test_a_client_is_throttled_for_as_long_as_its_bytes_should_have_taken() -> None:
    quotas = configured({whom(client_id="app"): {"producer_byte_rate": 100}})

    def record(amount: float, now_ms: int) -> int:
        return quotas.record(PRODUCE, user="ada", client_id="app", amount=amount, now_ms=now_ms)

    assert record(1000, NOW) == 0
    # 1500 bytes in the ten seconds that count: at 100 a second they should have taken fifteen.
    assert record(500, NOW) == 5000
    assert record(0, NOW + 500) == 4500


def test_what_happened_before_all_windows_is_forgotten() -> None:
    quotas = configured({whom(client_id="app"): {"producer_byte_rate": 100}})
    for second in range(100):
        now_ms = NOW + 1000 * second
        assert quotas.record(PRODUCE, user="ada", client_id="app", amount=90, now_ms=now_ms) == 0
    assert quotas.record(PRODUCE, user="ada", client_id="app", amount=1000, now_ms=NOW + 200_000) == 0


def test_bytes_that_were_not_sent_after_all_are_taken_back() -> None:
    quotas = configured({whom(client_id="app"): {"consumer_byte_rate": 100}})

    def record(amount: float) -> int:
        return quotas.record(QuotaKind.FETCH_BYTES, user="ada", client_id="app", amount=amount, now_ms=NOW)

    assert record(3000) == 20_000
    assert record(-3000) == 0
    assert record(1000) == 0


def test_a_throttle_time_fits_its_field_however_small_the_quota() -> None:
    quotas = configured({whom(client_id="app"): {"producer_byte_rate": 1}})
    throttle_ms = quotas.record(PRODUCE, user="ada", client_id="app", amount=2**40, now_ms=NOW)
    assert throttle_ms == 2**31 - 1


def test_handler_time_is_a_percentage_of_the_loop_and_throttles_for_a_window_at_most() -> None:
    quotas = configured({whom(user="ada"): {"request_percentage": 5}})

    def record(nanoseconds: int, now_ms: int) -> int:
        kind = QuotaKind.REQUEST_NANOSECONDS
        return quotas.record(kind, user="ada", client_id="app", amount=nanoseconds, now_ms=now_ms)

    # Five percent of ten seconds.
    assert record(500_000_000, NOW) == 0
    assert record(10_000_000, NOW) == 200
    assert record(1_000_000_000, NOW) == 1000


def test_a_changed_quota_counts_from_the_next_request_on_and_forgets_nothing() -> None:
    quotas = configured({whom(user="ada"): {"producer_byte_rate": 1000}})
    assert quotas.record(PRODUCE, user="ada", client_id="app", amount=2000, now_ms=NOW) == 0
    quotas.configure(image({whom(user="ada"): {"producer_byte_rate": 100}}))
    assert quotas.record(PRODUCE, user="ada", client_id="app", amount=0, now_ms=NOW) == 10_000
    quotas.configure(image({}))
    assert quotas.record(PRODUCE, user="ada", client_id="app", amount=2000, now_ms=NOW) == 0


@given(st.integers(1, 200), st.floats(0.01, 3), st.integers(1, 3000))
def test_a_greedy_client_gets_its_quota_in_the_long_run_and_little_more(
    limit: int, share: float, pause_ms: int
) -> None:
    quotas = configured({whom(client_id="app"): {"producer_byte_rate": limit}})
    amount = max(limit * share, limit * pause_ms / 1000)
    now_ms = NOW
    total: float = 0
    while now_ms < NOW + 300_000:
        total += amount
        throttle_ms = quotas.record(PRODUCE, user="ada", client_id="app", amount=amount, now_ms=now_ms)
        now_ms += max(pause_ms, throttle_ms)
    rate = total * 1000 / (now_ms - NOW)
    # A burst is forgotten with its window, even if it was larger than all windows allow.
    assert 0.99 * limit <= rate <= 1.25 * limit


@given(st.integers(1, 200), st.lists(st.integers(1, 3000)))
def test_whoever_stays_below_the_quota_is_never_throttled(limit: int, pauses_ms: list[int]) -> None:
    quotas = configured({whom(client_id="app"): {"producer_byte_rate": limit}})
    now_ms = NOW
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        # The first window begins with the first bytes, not with the pause before them: hence the margin.
        amount = 0.75 * limit * pause_ms / 1000
        assert quotas.record(PRODUCE, user="ada", client_id="app", amount=amount, now_ms=now_ms) == 0


# --------------------------------------------------------------------------------------- mutations


def mutate(quotas: Quotas, count: int, now_ms: int, *, is_strict: bool) -> int:
    return quotas.record_mutations(
        user="ada", client_id="app", count=count, now_ms=now_ms, is_strict=is_strict
    )


def test_a_strict_quota_accepts_any_change_until_tokens_are_owed_and_none_after() -> None:
    quotas = configured({whom(user="ada"): {"controller_mutation_rate": 2}})
    # Eleven seconds' worth of tokens are there, and eight more are taken on credit.
    assert mutate(quotas, 30, NOW, is_strict=True) == 0
    with pytest.raises(MutationsThrottled) as refused:
        mutate(quotas, 1, NOW + 1000, is_strict=True)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.value.throttle_ms == 3000
    assert mutate(quotas, 1, NOW + 4000, is_strict=True) == 0


def test_a_permissive_quota_accepts_every_change_and_throttles() -> None:
    quotas = configured({whom(user="ada"): {"controller_mutation_rate": 2}})
    assert mutate(quotas, 22, NOW, is_strict=False) == 0
    assert mutate(quotas, 4, NOW, is_strict=False) == 2000
    assert mutate(quotas, 4, NOW + 1000, is_strict=False) == 3000


def test_tokens_do_not_pile_up_beyond_the_burst() -> None:
    quotas = configured({whom(user="ada"): {"controller_mutation_rate": 2}})
    assert mutate(quotas, 1, NOW, is_strict=False) == 0
    assert mutate(quotas, 23, NOW + 1_000_000, is_strict=False) == 500


def test_changes_without_a_quota_are_never_refused() -> None:
    assert mutate(Quotas(), 10**6, NOW, is_strict=True) == 0
    others = configured({whom(user="bob"): {"controller_mutation_rate": 2}})
    assert mutate(others, 10**6, NOW, is_strict=True) == 0


# --------------------------------------------------------------------------------------- connections


def test_an_address_that_connects_too_often_is_held_off_and_what_was_refused_does_not_count() -> None:
    quotas = configured({whom(ip=None): {"connection_creation_rate": 1}})
    assert [quotas.record_connection("10.0.0.1", NOW) for _ in range(10)] == [0] * 10
    assert [quotas.record_connection("10.0.0.1", NOW) for _ in range(5)] == [1000] * 5
    assert quotas.record_connection("10.0.0.2", NOW) == 0
    # Were the five counted, it would be a whole second again.
    assert quotas.record_connection("10.0.0.1", NOW + 500) == 500
    assert [quotas.record_connection("10.0.0.1", NOW + 11_500) for _ in range(10)] == [0] * 10


def test_the_quota_of_an_address_counts_before_the_default_however_it_is_spelt() -> None:
    quotas = configured(
        {
            whom(ip=None): {"connection_creation_rate": 1},
            whom(ip="FD00:0:0::1"): {"connection_creation_rate": 100},
            whom(ip="not:an:address"): {"connection_creation_rate": 100},
        }
    )
    assert [quotas.record_connection("fd00::1", NOW) for _ in range(100)] == [0] * 100
    assert any(quotas.record_connection("fd00::2", NOW) for _ in range(11))


def test_addresses_without_a_quota_connect_as_they_like() -> None:
    assert not any(Quotas().record_connection("10.0.0.1", NOW) for _ in range(1000))
    others = configured({whom(ip="10.0.0.2"): {"connection_creation_rate": 1}})
    assert not any(others.record_connection("10.0.0.1", NOW) for _ in range(1000))


# --------------------------------------------------------------------------------------- memory


def test_who_is_idle_for_an_hour_is_forgotten() -> None:
    quotas = configured({whom(user=None): {"controller_mutation_rate": 0.001}})
    assert mutate(quotas, 100, NOW, is_strict=True) == 0
    almost_ms = NOW + SENSOR_IDLE_MS_MAX - 1
    with pytest.raises(MutationsThrottled):
        mutate(quotas, 1, almost_ms, is_strict=True)
    assert mutate(quotas, 1, almost_ms + SENSOR_IDLE_MS_MAX, is_strict=True) == 0
