"""A file of settings is read as Java reads it."""

import json
from collections.abc import Callable

import pytest

from moldau.node.properties import MalformedProperties, parse_properties, read_properties

TEXTS: dict[str, dict[str, str]] = {
    "": {},
    "a=1\nb = 2\nc:3\nd : 4\ne 5\nf\t6": {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"},
    "# a comment=1\n  ! another\n\n   a=1": {"a": "1"},
    "a=1\\\n   2\\\n\t3\nb=4": {"a": "123", "b": "4"},
    "a=1\\\n# no comment\nb=2": {"a": "1# no comment", "b": "2"},
    "a=ends\\\\\nb=2": {"a": "ends\\", "b": "2"},
    "# a comment is not continued\\\na=1": {"a": "1"},
    "a=1\\": {"a": "1"},
    "a=1\r\nb=2\rc=3": {"a": "1", "b": "2", "c": "3"},
    "a=\\u0041\\u00e9\nb=\\ud83d\\ude00": {"a": "Aé", "b": "😀"},
    "a=\\t\\n\\r\\f\\x\\ \\=": {"a": "\t\n\r\fx =", },
    "a\\ b\\=c\\:d=e": {"a b=c:d": "e"},
    "a==b:c=d": {"a": "=b:c=d"},
    "a=1\na=2": {"a": "2"},
    "a": {"a": ""},
    "a=": {"a": ""},
    "a=kept  ": {"a": "kept  "},
    "a = \\  kept": {"a": "  kept"},
    "a=1\n   b=2": {"a": "1", "b": "2"},
    "a=x\fy": {"a": "x\fy"},
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_names_and_values_are_told_apart(text: str) -> None:
    assert parse_properties(text) == TEXTS[text]


def test_each_value_knows_its_line() -> None:
    written = read_properties("# first\na=1\\\n  2\nb=3\na=4")
    assert written == {"a": ("4", 5), "b": ("3", 4)}


LOAD = """
import com.fasterxml.jackson.databind.*;
import java.io.*;
import java.util.*;
public class Load {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<Properties> found = new ArrayList<>();
        for (JsonNode text : json.readTree(System.in)) {
            Properties properties = new Properties();
            properties.load(new StringReader(text.asText()));
            found.add(properties);
        }
        System.out.println(json.writeValueAsString(found));
    }
}
"""


def test_java_reads_the_same(run_java: Callable[..., str]) -> None:
    assert json.loads(run_java(LOAD, stdin=json.dumps(list(TEXTS)))) == list(TEXTS.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\n\n=2", "line 3: there is no name before '='"),
        ("a=1\\\n2\nb=\\u12", "line 3: \\u must be followed by four hexadecimal digits"),
        ("a=\\ud83d", "line 1: half a surrogate pair stands for no character"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(MalformedProperties) as refused:
        parse_properties(text)
    assert str(refused.value) == message
