"""`moldau group` and `moldau consume --group` against a broker in a process of its own."""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import Cli, JsonOf
from click.testing import CliRunner, Result
from clients.broker_process import PRODUCTS, BrokerProcess

from moldau.cli import main
from moldau.cli._groups import complete_group
from moldau.cli.group import command, obstacles
from moldau.client import connect_sync
from moldau.client.blocking import BlockingGroupConsumer
from moldau.client.groups import GroupView, MemberView
from moldau.client.metadata import Broker
from moldau.client.offsets import place_of
from moldau.testing.ports import ReservedPort
from moldau.world.ports import Address


@pytest.fixture
def group(topic: str) -> str:
    """The name of a group that nobody else has."""
    return f"group-of-{topic}"[:200]


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str) -> Iterator[BlockingGroupConsumer]:
    """Somebody who reads, and has partitions."""
    with (
        connect_sync(broker.address, client_id="reader") as client,
        client.group_consumer([topic], group_id=group, auto_offset_reset="earliest") as consumer,
    ):
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        yield consumer


@pytest.mark.parametrize("start", ["beginning", "end", None])
def test_whoever_follows_in_a_new_group_begins_at_the_end_unless_told_otherwise(
    broker: BrokerProcess, cli: Cli, log: str, start: str | None
) -> None:
    group = f"group-of-{log}"[:200]
    cli("produce", log, "before")
    words = ["consume", log, "-f", "--group", group, "-b", broker.address]
    words += [] if start is None else ["--from", start]
    with subprocess.Popen(
        [sys.executable, "-m", "moldau", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if start != "beginning":
            write_until_read(cli, log, process)
        else:
            assert process.stdout.readline() == "before\n"
        process.terminate()


def write_until_read(cli: Cli, log: str, process: subprocess.Popen[str]) -> None:
    """Write until something of that is printed, and nothing that was there before."""
    assert process.stdout is not None
    while not select.select([process.stdout], [], [], 0.2)[0]:
        cli("produce", log, "after")
    assert process.stdout.readline() == "after\n"


def test_a_group_goes_on_where_it_has_committed_and_shows_its_lag(
    cli: Cli, json_of: JsonOf, topic: str, group: str
) -> None:
    cli("produce", topic, "a", "b", "c", "-p", "1")
    assert cli("consume", topic, "--group", group, "-n", "2").stdout == "a\nb\n"
    (described,) = json_of("group", "describe", group)
    rows = {row["partition"]: (row["committed"], row["end"], row["lag"]) for row in described["partitions"]}
    assert rows[1] == (2, 3, 1)
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 1, [])
    assert cli("consume", topic, "--group", group).stdout == "c\n"
    assert cli("consume", topic, "--group", group).stdout == ""
    shown = cli("group", "describe", group).stdout
    assert f"group        {group}\n" in shown
    assert "lag          0\n" in shown
    listed = {row["group"]: row["state"] for row in json_of("group", "list")}
    assert listed[group] == "Empty"
    assert group in cli("group", "list", "--state", "Empty").stdout
    assert group not in cli("group", "list", "--state", "Stable").stdout


def test_a_group_that_has_committed_nothing_begins_where_from_says(cli: Cli, topic: str, group: str) -> None:
    cli("produce", topic, "old", "-p", "0")
    assert cli("consume", topic, "--group", group, "--from", "end").stdout == ""
    cli("produce", topic, "new", "-p", "0")
    assert cli("consume", topic, "--group", group, "--from", "beginning").stdout == "new\n"


@pytest.mark.parametrize(
    ("where", "expected"), [("beginning", 0), ("end", 4), ("3", 3), ("-1", 3), ("99", 4), ("@0", 0)]
)
def test_a_group_is_moved_by_the_words_for_places(
    cli: Cli, json_of: JsonOf, topic: str, group: str, where: str, expected: int
) -> None:
    cli("produce", topic, "a", "b", "c", "d", "-p", "0")
    cli("consume", topic, "--group", group, "-n", "2")
    seek = ["group", "seek", group, "--to", where, "--topic", topic, "-p", "0"]
    (planned,) = json.loads(cli(*seek, "--dry-run", "-o", "json").stdout)
    assert planned == {"topic": topic, "partition": 0, "from": 2, "to": expected, "done": False}
    assert committed(json_of, group) == 2
    assert str(expected) in cli(*seek).stdout.splitlines()[1].split()
    assert committed(json_of, group) == expected


def committed(json_of: JsonOf, group: str) -> int:
    rows = json_of("group", "describe", group)[0]["partitions"]
    (found,) = (row["committed"] for row in rows if row["partition"] == 0)
    assert isinstance(found, int)
    return found


def test_a_group_that_does_not_exist_yet_can_be_given_a_place(
    cli: Cli, json_of: JsonOf, topic: str, group: str
) -> None:
    cli("produce", topic, "a", "b", "-p", "0")
    cli("group", "seek", group, "--to", "1", "--topic", topic, "-p", "0")
    assert committed(json_of, group) == 1
    assert cli("consume", topic, "--group", group).stdout == "b\n"


def test_while_somebody_reads_a_group_is_shown_with_its_members_and_left_alone(
    cli: Cli, json_of: JsonOf, broker: BrokerProcess, topic: str, group: str
) -> None:
    cli("produce", topic, "a", "-p", "0")
    with member(broker, group, topic) as consumer:
        (described,) = json_of("group", "describe", group)
        (row,) = described["members"]
        assert (row["client_id"], row["partitions"]) == ("reader", [f"{topic}-0", f"{topic}-1"])
        assert "reader" in cli("group", "describe", group).stdout
        refused = cli("group", "seek", group, "--to", "end", "--topic", topic, exit_code=1)
        assert "has 1 members (reader) and is Stable: stop them first" in refused.stderr
        assert "stop them first" in cli("group", "delete", group, "--yes", exit_code=1).stderr
        assert len(consumer.assignment()) == 2


def test_deleting_takes_a_yes_and_can_be_tried_first(
    cli: Cli, json_of: JsonOf, topic: str, group: str
) -> None:
    cli("produce", topic, "a", "-p", "0")
    cli("consume", topic, "--group", group)
    assert cli("group", "delete", group, "--dry-run").stderr == f"{group} could be deleted\n"
    assert "Confirm with --yes" in cli("group", "delete", group, exit_code=2).stderr
    assert cli("group", "delete", group, "--yes").stderr == f"{group} deleted\n"
    assert group not in {row["group"] for row in json_of("group", "list")}
    near = cli("group", "describe", group, exit_code=3).stderr
    assert f"There is no group '{group}'." in near


def test_words_that_make_no_sense_together_are_refused(cli: Cli, topic: str, group: str) -> None:
    for words in (["-p", "0"], ["--from", "42"]):
        refused = cli("consume", topic, "--group", group, *words, exit_code=2)
        assert "the group decides what is read" in refused.stderr
    cli("group", "seek", group, "--to", "end", exit_code=3)
    cli("group", "seek", group, "--to", "end", "--topic", "absent", exit_code=3)


def test_explain_says_who_came_and_went(tmp_path: Path) -> None:
    port = ReservedPort()
    process = BrokerProcess(PRODUCTS["moldau"], tmp_path, {"moldau.admin.listener": port.address})
    try:

        def cli(*words: str) -> Result:
            environment = {"MOLDAU_BOOTSTRAP_SERVER": process.address}
            return CliRunner(env=environment).invoke(main, list(words))

        assert cli("topic", "create", "orders", "-p", "2").exit_code == 0
        with member(process, "the group/of us", "orders"):
            pass
        explain = ["group", "explain", "the group/of us"]
        assert "--admin HOST:PORT" in cli(*explain).stderr
        explain += ["--admin", port.address]
        told = json.loads(cli(*explain, "-o", "json").stdout)
        causes = [cause for each in told["rebalances"] for cause in each["causes"]]
        assert [(cause["what"], cause["who"]) for cause in causes] == [
            ("joined", "reader at /127.0.0.1"),
            ("left", "reader at /127.0.0.1"),
        ]
        assert (told["state"], told["waits_for"]) == ("Empty", [])
        shown = cli(*explain).stdout
        assert re.search(r"\d+-\d+-\d+T\d+:\d+:[\d.]+ +\d+ +reader at /127.0.0.1 +joined\n", shown), shown
        elsewhere = cli("group", "explain", "the group/of us", "--admin", "127.0.0.1:1")
        assert elsewhere.exit_code == 5
    finally:
        process.stop()
        port.close()


def test_explain_tells_what_a_group_waits_for() -> None:
    def view(state: str, *members: MemberView) -> GroupView:
        return GroupView(
            "g", "Consumer", "consumer", state, "uniform", Broker(1, Address("h", 1)), members, 2, 2
        )

    zero, one = place_of(("orders", 0)), place_of(("orders", 1))
    slow = MemberView("m1", None, "slow", "/10.0.0.1", (zero, one), (zero,), 1, True)
    new = MemberView("m2", "till-1", "new", "/10.0.0.2", (), (one,), 2, True)
    assert obstacles(view("Reconciling", slow, new)) == [
        "slow at 10.0.0.1 has still to give up orders-1.",
        "till-1 waits for orders-1.",
    ]
    assert obstacles(view("Stable", MemberView("m", None, "c", "/h", (zero,), (zero,), 2, True))) == []
    assert obstacles(view("PreparingRebalance")) == [
        "Waits for members to join, or for the leader's assignment."
    ]


def test_the_shell_completes_groups(cli: Cli, broker: BrokerProcess, topic: str, group: str) -> None:
    cli("produce", topic, "a", "-p", "0")
    cli("consume", topic, "--group", group)
    describe = command.commands["describe"]
    context = describe.make_context("describe", [group, "-b", broker.address])
    assert complete_group(context, describe.params[0], group[:-1]) == [group]
    context = describe.make_context("describe", [group, "-b", "127.0.0.1:1"])
    assert complete_group(context, describe.params[0], "") == []
