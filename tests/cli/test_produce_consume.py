"""`moldau produce` and `moldau consume`: what goes in comes out, from any place, in any form."""

from __future__ import annotations

import json
import time

import pytest
from cli.conftest import Cli

# What a record can be made of: nothing, emptiness, text, bytes that are no text, headers of one name.
AWKWARD: list[dict[str, object]] = [
    {"key": None, "value": None, "headers": []},
    {"key": "", "value": "", "headers": [["", None]]},
    {"key": "k", "value": "line\nline\r\n", "headers": [["a", "1"], ["a", "2"], ["b", ""]]},
    {"key": {"base64": "/w=="}, "value": {"base64": "AP8A"}, "headers": [["h", {"base64": "/w=="}]]},
    {"key": "schlüssel", "value": "☃ \u0000 \u2028", "headers": []},
]


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")] if text else []


# ---------------------------------------------------------------- round trips


def test_json_goes_around_without_losing_a_byte(cli: Cli, log: str) -> None:
    rows = [{**row, "timestamp": 1000 + index, "partition": 0} for index, row in enumerate(AWKWARD)]
    cli("produce", log, "--format", "json", input="".join(json.dumps(row) + "\n" for row in rows))
    first = cli("consume", log, "-o", "json").stdout_bytes
    assert json_lines(first.decode()) == [
        {"topic": log, "offset": index, **row} for index, row in enumerate(rows)
    ]
    cli("topic", "create", f"{log}-copy", "-p", "1", "-c", "retention.ms=-1")
    cli("produce", f"{log}-copy", "--format", "json", input=first)
    second = cli("consume", f"{log}-copy", "-o", "json").stdout_bytes
    assert second == first.replace(f'"{log}"'.encode(), f'"{log}-copy"'.encode())


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_codec_and_every_acks_writes(cli: Cli, log: str, compression: str, acks: str) -> None:
    cli("produce", log, "-z", compression, "--acks", acks, "a", "b")
    # With acks=0 the broker may still be at it.
    while (read := cli("consume", log).stdout) != "a\nb\n":
        assert "a\nb\n".startswith(read)


def test_many_lines_arrive_in_order(cli: Cli, log: str) -> None:
    text = "".join(f"line {number}\n" for number in range(30_000))
    assert "30000 records written" in cli("produce", log, input=text).stderr
    assert cli("consume", log).stdout == text


# ---------------------------------------------------------------- writing


def test_arguments_are_records(cli: Cli, log: str) -> None:
    written = cli("produce", log, "-k", "key", "-H", "a=1", "-H", "b", "--timestamp", "77", "x", "y")
    assert written.stdout == ""
    assert written.stderr == f"2 records written to {log}: partition 0 offset 0 to 1\n"
    assert json_lines(cli("consume", log, "-o", "json").stdout)[1] == {
        "topic": log,
        "partition": 0,
        "offset": 1,
        "timestamp": 77,
        "key": "key",
        "value": "y",
        "headers": [["a", "1"], ["b", None]],
    }


def test_lines_are_records(cli: Cli, log: str) -> None:
    cli("produce", log, "-K", ":", "--null", "NULL", input="a:1\nb:NULL\nNULL:2:3\n\n:4", exit_code=1)
    cli("produce", log, "-K", ":", "--null", "NULL", input="a:1\nb:NULL\nNULL:2:3\n:4")
    rows = json_lines(cli("consume", log, "-o", "json", "--from", "-4").stdout)
    assert [(row["key"], row["value"]) for row in rows] == [("a", "1"), ("b", None), (None, "2:3"), ("", "4")]


def test_nothing_in_writes_nothing(cli: Cli, log: str) -> None:
    assert cli("produce", log, input="").stderr == f"0 records written to {log}\n"
    assert cli("consume", log).stdout == ""


def test_a_tombstone_has_no_value(cli: Cli, log: str) -> None:
    cli("produce", log, "-k", "gone", "--tombstone")
    assert json_lines(cli("consume", log, "-o", "json").stdout)[0]["value"] is None
    assert "has no value" in cli("produce", log, "--tombstone", "x", exit_code=2).stderr


def test_each_record_is_reported_as_json(cli: Cli, log: str) -> None:
    rows = json_lines(cli("produce", log, "--timestamp", "5", "a", "b", "-o", "json").stdout)
    assert rows == [{"topic": log, "partition": 0, "offset": offset, "timestamp": 5} for offset in (0, 1)]
    unknown = json_lines(cli("produce", log, "a", "--acks", "0", "-o", "json").stdout)
    assert unknown[0]["offset"] is None


def test_the_partition_is_chosen_by_key_by_turns_or_by_hand(cli: Cli, topic: str) -> None:
    def partitions(*arguments: str) -> list[object]:
        rows = json_lines(cli("produce", topic, *arguments, "-o", "json").stdout)
        return [row["partition"] for row in rows]

    assert partitions("a", "b", "c", "d", "--partitioner", "round_robin") == [0, 1, 0, 1]
    assert len(set(partitions("a", "b", "c", "-k", "same"))) == 1
    assert partitions("a", "b", "-p", "1") == [1, 1]
    refused = cli("produce", topic, "x", "-p", "9", exit_code=3)
    assert "There is no partition 9" in refused.stderr


def test_a_line_that_is_no_record_is_named(cli: Cli, log: str) -> None:
    lines = '{"value": "a"}\n{"value": 1}\n'
    assert (
        "Line 2 is no record: its value must"
        in cli("produce", log, "--format", "json", input=lines, exit_code=1).stderr
    )
    assert (
        "Line 1 is no record: it has no key separator"
        in cli("produce", log, "-K", ":", input="x\n", exit_code=1).stderr
    )


def test_what_comes_before_a_line_that_is_no_record_is_written(cli: Cli, log: str) -> None:
    refused = cli("produce", log, "-K", ":", input="a:1\nb:2\nc\nd:4\n", exit_code=1)
    assert "Line 3 is no record" in refused.stderr
    assert refused.stderr.endswith(" The 2 before it were written.\n")
    assert cli("consume", log).stdout == "1\n2\n"


def test_a_record_that_is_refused_is_named(cli: Cli, log: str) -> None:
    cli("topic", "alter", log, "--set", "cleanup.policy=compact")
    refused = cli("produce", log, "no key", exit_code=1)
    assert refused.stderr.startswith("Error: Record 1 was not written: ")
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.count("takes no record without a key") == 1


@pytest.mark.parametrize(
    "arguments", [["x", "--format", "json"], ["x", "-K", ":"], ["-K", ""], ["--acks", "2"], ["-z", "brotli"]]
)
def test_options_that_do_not_go_together_are_wrong_usage(cli: Cli, log: str, arguments: list[str]) -> None:
    cli("produce", log, *arguments, input="", exit_code=2)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], "abcdef"),
        (["--from", "beginning"], "abcdef"),
        (["--from", "end"], ""),
        (["--from", "4"], "ef"),
        (["--from", "6"], ""),
        (["--from", "-2"], "ef"),
        (["--from", "-99"], "abcdef"),
        (["--from", "@1003"], "def"),
        (["--from", "@9999"], ""),
        (["--from", "1970-01-01T00:00:01.004Z"], "ef"),
        (["--from", "-1h"], ""),
        (["-n", "2"], "ab"),
        (["-n", "0"], ""),
        (["--from", "2", "-n", "2"], "cd"),
        (["--from", "3", "-f", "-n", "3"], "def"),
    ],
)
def test_reading_begins_and_ends_where_it_is_told(
    cli: Cli, log: str, arguments: list[str], values: str
) -> None:
    rows = [{"value": value, "timestamp": 1000 + index} for index, value in enumerate("abcdef")]
    cli("produce", log, "--format", "json", input="".join(json.dumps(row) + "\n" for row in rows))
    assert cli("consume", log, *arguments).stdout == "".join(f"{value}\n" for value in values)


def test_partitions_can_be_chosen(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-p", "0", "a")
    cli("produce", topic, "-p", "1", "b")
    assert sorted(cli("consume", topic).stdout) == ["\n", "\n", "a", "b"]
    assert cli("consume", topic, "-p", "1").stdout == "b\n"
    assert sorted(cli("consume", topic, "-p", "1", "-p", "0").stdout) == ["\n", "\n", "a", "b"]
    assert "has no partition 2" in cli("consume", topic, "-p", "2", exit_code=3).stderr


def test_what_was_trimmed_is_passed_over_with_a_note(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b", "c")
    cli("topic", "trim", log, "--before", "2", "--yes")
    read = cli("consume", log, "--from", "0")
    assert read.stdout == "c\n"
    assert read.stderr == f"{log}-0 begins at offset 2.\n"


def test_an_offset_beyond_the_end_may_have_been_meant_as_a_time(cli: Cli, log: str) -> None:
    stderr = cli("consume", log, "--from", "1700000000000", exit_code=1).stderr
    assert "If that is meant as a time, write @1700000000000." in stderr


def test_a_format_prints_what_it_says(cli: Cli, log: str) -> None:
    cli("produce", log, "-k", "k", "-H", "h=1", "--timestamp", "5", "v")
    assert cli("consume", log, "--format", "%t %p %o %k %s %h %T\\n").stdout == f"{log} 0 0 k v h=1 5\n"
    assert "is none of" in cli("consume", log, "--format", "%q", exit_code=2).stderr
    assert "Choose between" in cli("consume", log, "--format", "%s", "-o", "json", exit_code=2).stderr


def test_a_table_is_for_people(cli: Cli, log: str) -> None:
    cli("produce", log, "--format", "json", input='{"value": {"base64": "/wo="}, "timestamp": 0}')
    head, row = cli("consume", log, "-o", "table").stdout.splitlines()
    assert head.split() == ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE"]
    assert row.split()[:2] == ["0", "0"]
    assert row.endswith("  -                 \\xff\\n")


def test_topic_produce_and_consume_are_the_same_commands(cli: Cli, log: str) -> None:
    cli("topic", "produce", log, "a")
    assert cli("topic", "consume", log).stdout == "a\n"


def test_records_that_are_older_than_a_time_are_left_out(cli: Cli, log: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [{"value": "old", "timestamp": now_ms - 7_200_000}, {"value": "new", "timestamp": now_ms - 60_000}]
    cli("produce", log, "--format", "json", input="".join(json.dumps(row) + "\n" for row in rows))
    assert cli("consume", log, "--from", "-1h").stdout == "new\n"


def test_a_time_that_no_calendar_has_is_shown_as_a_number(cli: Cli, log: str) -> None:
    cli("topic", "alter", log, "-c", "message.timestamp.after.max.ms=9223372036854775807")
    cli("produce", log, "x", "--timestamp", "1700000000000000000")
    assert "  @1700000000000000000     -                 x\n" in cli("consume", log, "-o", "table").stdout
