"""A setting is called honoured only when a test shows that it changes behaviour."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.model.settings.table import HONOURED

TESTS = Path(__file__).parent.parent


def test_every_honoured_setting_is_shown_by_a_test_and_no_other_is() -> None:
    shown = {name for path in sorted(TESTS.rglob("test_*.py")) for name in names_shown(path.read_text())}
    unshown = [group[0] for group in groups_of_names() if not shown.intersection(group)]
    assert not unshown, f"no test is marked to show that these are honoured: {', '.join(unshown)}"
    surplus = sorted(shown - {row.name for row in HONOURED})
    assert not surplus, f"tests show these, so their rows belong into the table: {', '.join(surplus)}"


def test_only_marks_on_tests_count() -> None:
    source = '''
import pytest

"""@pytest.mark.honours("in.a.string")"""

@pytest.mark.honours("one.name", "another.name")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.honours("in.a.row"))])
def test_something(x): ...

class TestMore:
    @pytest.mark.honours("in.a.class")
    async def test_more(self): ...

@pytest.mark.honours("not.a.test")
def helper(): ...
'''
    assert list(names_shown(source)) == ["one.name", "another.name", "in.a.row", "in.a.class"]


@pytest.mark.parametrize("name", ["retention.ms", "log.retention.hours"])
def test_a_topics_setting_and_what_it_falls_back_to_are_one(name: str) -> None:
    assert [group[0] for group in groups_of_names() if name in group] == ["retention.ms"]


def groups_of_names() -> list[list[str]]:
    """The names of each honoured setting: a topic's own first, then those of the broker behind it."""
    groups = [[row.name, *(synonym.name for synonym in row.synonyms)] for row in HONOURED]
    behind = {name for group in groups for name in group[1:]}
    return [group for group in groups if len(group) > 1 or group[0] not in behind]


def names_shown(source: str) -> Iterator[str]:
    """The names in the `honours` marks on the tests of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                for mark in ast.walk(decorator):
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.honours":
                        yield from (ast.literal_eval(argument) for argument in mark.args)
