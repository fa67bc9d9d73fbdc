from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.timers import Timer, Timers


def drain(timers: Timers[str], now_ms: int) -> Iterator[str]:
    while (what := timers.due(now_ms)) is not None:
        yield what


def test_what_is_due_happens_once_and_in_the_order_of_its_deadlines() -> None:
    timers: Timers[str] = Timers()
    late, early = Timer("late"), Timer("early")
    timers.set(late, 20)
    timers.set(early, 10)
    assert list(drain(timers, 9)) == []
    assert list(drain(timers, 20)) == ["early", "late"]
    assert list(drain(timers, 99)) == []
    assert not late.is_set


def test_those_of_one_millisecond_happen_in_the_order_in_which_they_were_set() -> None:
    timers: Timers[str] = Timers()
    for name in "badc":
        timers.set(Timer(name), 5)
    assert list(drain(timers, 5)) == list("badc")


def test_a_timer_that_is_put_off_is_not_queued_again_until_its_old_turn_comes() -> None:
    timers: Timers[str] = Timers()
    timer = Timer("session")
    timers.set(timer, 10)
    for deadline in range(11, 1000):
        timers.set(timer, deadline)
    assert timers.next_ms() == 10
    assert list(drain(timers, 10)) == []
    assert timers.next_ms() == 999
    assert list(drain(timers, 999)) == ["session"]


def test_a_timer_that_is_cancelled_does_not_happen_unless_it_is_set_again() -> None:
    timers: Timers[str] = Timers()
    timer = Timer("session")
    timers.set(timer, 10)
    timer.cancel()
    assert list(drain(timers, 50)) == []
    assert timers.next_ms() is None
    timers.set(timer, 60)
    assert list(drain(timers, 60)) == ["session"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "cancel", "wait"]),
        st.integers(min_value=0, max_value=3),
        st.integers(min_value=0, max_value=30),
    )
)


@given(STEPS)
def test_each_timer_happens_at_the_deadline_that_it_was_given_last(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[str] = Timers()
    mine = [Timer(str(number)) for number in range(4)]
    expected: dict[str, int] = {}
    now = 0
    for step, number, amount in steps:
        timer = mine[number]
        if step == "set":
            timers.set(timer, now + amount)
            expected[timer.what] = now + amount
        elif step == "cancel":
            timer.cancel()
            expected.pop(timer.what, None)
        else:
            now += amount
            due = {what for what, deadline in expected.items() if deadline <= now}
            assert set(drain(timers, now)) == due
            for what in due:
                del expected[what]
        assert all(timer.is_set == (timer.what in expected) for timer in mine)
        next_ms = timers.next_ms()
        assert not expected or (next_ms is not None and next_ms <= min(expected.values()))
