"""Records as text: JSON that keeps every byte, formats, lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli._records import (
    BadRecord,
    LineFormat,
    NewRecord,
    parse_format,
    record_from_json,
    record_to_json,
)
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.wire.records.record import Record

PLACE = TopicPartition(TopicName("orders"), PartitionIndex(3))

some_bytes = st.none() | st.binary() | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode)
names = st.text(st.characters(exclude_categories=["Cs"]))
records = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(0, 2**63 - 1),
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(names, some_bytes)).map(tuple),
)


@given(records)
def test_what_is_printed_as_json_is_read_again_to_the_last_byte(record: Record) -> None:
    line = record_to_json(PLACE, record)
    assert line.count(b"\n") == 1
    assert record_from_json(line) == NewRecord(
        record.value, record.key, record.headers, PLACE.partition, record.timestamp
    )


def test_the_json_of_a_record_does_not_change() -> None:
    record = Record(7, 1000, b"\xff\x00", "grün".encode(), (("a", b"1"), ("a", None), ("b", b"\xfe")))
    assert record_to_json(PLACE, record).decode() == (
        '{"topic":"orders","partition":3,"offset":7,"timestamp":1000,"key":{"base64":"/wA="},"value":"grün",'
        '"headers":[["a","1"],["a",null],["b",{"base64":"/g=="}]]}\n'
    )


def test_only_the_value_must_be_given() -> None:
    assert record_from_json(b'{"value": null}') == NewRecord(None)
    assert record_from_json(b'{"value": "", "headers": {"a": "1"}}') == NewRecord(b"", headers=(("a", b"1"),))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "it is not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"key": "a"}', 'it has no "value"'),
        (b'{"value": "a", "vlaue": 1}', "perhaps for 'value'"),
        (b'{"value": 1}', "its value must be a text, null or"),
        (b'{"value": {"base64": "?"}}', "its value is not in base64"),
        (b'{"value": {"base64": "AA==", "x": 1}}', "its value must be"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "a", "headers": [["a"]]}', "headers must be"),
        (b'{"value": "a", "headers": [[1, "a"]]}', "name of a header"),
        (b'{"value": "a", "partition": -1}', "its partition must be"),
        (b'{"value": "a", "timestamp": true}', "its timestamp must be"),
        (
            b'{"value": "a", "timestamp": 9223372036854775808}',
            "its timestamp must be a whole number of at most 64",
        ),
        (b'{"value": "a", "partition": 2147483648}', "its partition must be a whole number of at most 32"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes, complaint: str) -> None:
    with pytest.raises(BadRecord, match=complaint):
        record_from_json(line)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("%s\\n", b"v\n"),
        ("%t[%p]@%o %T %k=%s", b"orders[3]@7 1000 k=v"),
        ("%h", b"a=1,b=NULL"),
        ("%K %S %%", b"1 1 %"),
        ("\\t\\r\\0\\x41\\\\", b"\t\r\0A\\"),
        ("", b""),
    ],
)
def test_a_format_says_what_is_printed(form: str, printed: bytes) -> None:
    record = Record(7, 1000, b"k", b"v", (("a", b"1"), ("b", None)))
    assert parse_format(form, null=b"NULL")(PLACE, record) == printed


def test_what_is_none_is_printed_as_asked() -> None:
    assert parse_format("%k %s %K %S", null=b"-")(PLACE, Record(0, 0, None, None)) == b"- - -1 -1"


@pytest.mark.parametrize("form", ["%x", "%", "\\q", "\\"])
def test_a_format_with_a_mistake_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"none of|lone"):
        parse_format(form, null=b"")


def test_a_line_may_have_a_key() -> None:
    assert LineFormat().record(b"a:b") == NewRecord(b"a:b")
    assert LineFormat(b":").record(b"a:b:c") == NewRecord(b"b:c", b"a")
    assert LineFormat(b":", b"N").record(b"a:N") == NewRecord(None, b"a")
    with pytest.raises(BadRecord, match="no key separator ':'"):
        LineFormat(b":").record(b"a")


def test_the_json_is_json_for_everyone() -> None:
    printed = json.loads(record_to_json(PLACE, Record(0, -1, None, b'"\n\\')))
    assert printed["value"] == '"\n\\'
    assert printed["timestamp"] is None
