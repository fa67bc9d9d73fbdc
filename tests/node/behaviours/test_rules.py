"""Every rule that clients depend on is shown by a test that names it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from node.behaviours.rules import APPLICABLE, NOT_YET, RULES

TESTS = Path(__file__).parents[2]


def test_every_applicable_rule_is_shown_by_a_test_and_no_other_is() -> None:
    shown = {number for path in sorted(TESTS.rglob("test_*.py")) for number in rules_shown(path.read_text())}
    unshown = {number: rule for number, rule in APPLICABLE.items() if number not in shown}
    assert not unshown, f"no test shows these: {unshown}"
    surplus = sorted(shown - set(APPLICABLE))
    assert not surplus, f"tests show rules that are not in the list: {surplus}"


def test_every_rule_is_applicable_or_waits_for_something() -> None:
    assert sorted([*APPLICABLE, *(rule for rules in NOT_YET.values() for rule in rules)]) == list(RULES)


def rules_shown(source: str) -> Iterator[int]:
    """The numbers in the `behaviour` marks on the tests of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                for mark in ast.walk(decorator):
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.behaviour":
                        yield from (ast.literal_eval(argument) for argument in mark.args)
