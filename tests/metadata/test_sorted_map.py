from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.sorted_map import SortedMap

CHANGES = st.lists(
    st.dictionaries(st.integers(0, 400), st.integers(0, 9) | st.none(), max_size=150), max_size=4
)


@given(CHANGES)
def test_it_holds_what_a_dict_would_hold(histories: list[dict[int, int | None]]) -> None:
    expected: dict[int, int] = {}
    found: SortedMap[int, int] = SortedMap()
    for changes in histories:
        before = dict(found.items())
        changed = found.changed(changes)
        assert dict(found.items()) == before
        for key, value in changes.items():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        found = changed
    assert list(found.items()) == sorted(expected.items())
    assert list(found) == sorted(expected)
    assert list(found.values()) == [expected[key] for key in sorted(expected)]
    assert len(found) == len(expected)
    for key in range(-1, 402, 7):
        assert found.get(key) == expected.get(key)
        assert (key in found) == (key in expected)


@given(st.sets(st.integers(0, 400)), st.integers(-1, 401))
def test_iteration_can_begin_in_the_middle(keys: set[int], first: int) -> None:
    found = SortedMap[int, int]().changed({key: key for key in keys})
    assert list(found.keys_from(first)) == sorted(key for key in keys if key >= first)


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)))
def test_equality_does_not_depend_on_the_way_there(keys: set[int], others: set[int]) -> None:
    straight = SortedMap[int, int]().changed({key: key for key in keys})
    detour = SortedMap[int, int]().changed(dict.fromkeys(others | keys, 0))
    detour = detour.changed(dict.fromkeys(others - keys)).changed({key: key for key in keys})
    assert straight == detour
    assert (straight == detour.changed({-1: 0})) is False


def test_a_change_copies_a_chunk_and_not_the_world() -> None:
    before = SortedMap[int, str]().changed({key: str(key) for key in range(10_000)})
    after = before.changed({5_000: "changed"})
    shared = [mine is theirs for mine, theirs in zip(before._chunks, after._chunks, strict=True)]
    assert shared.count(False) == 1
    assert max(map(len, after._chunks)) <= 128


def test_nothing_changed_is_the_same_map() -> None:
    found = SortedMap[str, int]().changed({"a": 1})
    assert found.changed({}) is found
