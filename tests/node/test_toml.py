"""Settings in TOML are the settings of the properties, whichever way tables are used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.node.toml import MalformedToml, read_toml

WAYS = {
    "whole names": """
"log.retention.ms" = 5
"listeners" = "A://:1,B://:2"
"auto.create.topics.enable" = false
"log.cleaner.min.cleanable.ratio" = 0.25
""",
    "dotted names": """
log.retention.ms = 5
listeners = ["A://:1", "B://:2"]
auto.create.topics.enable = false
log.cleaner.min.cleanable.ratio = 0.25
""",
    "tables": """
listeners = [
  "A://:1",  # the first
  "B://:2",
]
[log]
retention.ms = 5
[log.cleaner]
min = { cleanable.ratio = 0.25 }
[auto.create]
topics.enable = false
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_tables_are_joined_with_dots(way: str) -> None:
    assert {name: written.text for name, written in read_toml(WAYS[way]).items()} == {
        "log.retention.ms": "5",
        "listeners": "A://:1,B://:2",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }


def test_each_value_knows_its_line_and_a_long_one_where_it_begins() -> None:
    text = """# comment
a = 1

[b]  # a table
c = '''
[x]
y = 1'''
d = [
  1,

  2,
]
e = { f = 3 }
[ "b.b" . g ]
h = 4
"""
    lines = {name: written.line for name, written in read_toml(text).items()}
    assert lines == {"a": 2, "b.c": 5, "b.d": 8, "b.e.f": 13, "b.b.g.h": 15}


@given(
    st.dictionaries(
        st.text("abc.-_ ", min_size=1), st.one_of(st.integers(), st.booleans(), st.text("ab\n'[]=#"))
    )
)
def test_no_value_is_lost_and_every_line_is_found(values: dict[str, int | bool | str]) -> None:
    lines: list[str] = []
    expected = {}
    for name, value in values.items():
        expected[name] = len("\n".join([*lines, ""]).split("\n"))
        shown = str(value).lower() if isinstance(value, int) else '"' + value.replace("\n", "\\n") + '"'
        lines.append(f'"{name}" = {shown}')
    read = read_toml("\n".join(lines))
    assert {name: written.line for name, written in read.items()} == expected
    assert {name: written.text for name, written in read.items()} == {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\na = 2\n", "Cannot overwrite a value (at line 2, column 6)"),
        ('a.b = 1\n"a.b" = 2', "a.b is given twice"),
        ("node.id: 1", "line 1"),
        ("a = 1979-05-27", "a must be a text, a number, true or false, or a list of these"),
        ("[[a]]\nb = 1", "a must be a text"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(MalformedToml) as refused:
        read_toml(text)
    assert message in str(refused.value)
