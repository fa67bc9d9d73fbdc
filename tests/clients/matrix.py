"""Let every client play every scenario with the broker, and write the page that tells how it went.

python tests/clients/matrix.py                              # all clients; writes docs/clients.md
MOLDAU_TEST_BROKER=kafka python tests/clients/matrix.py --print    # what Kafka makes of it, shown only
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from clients.broker_process import BrokerProcess, Product, product_under_test  # noqa: E402
from clients.drivers import DRIVERS, REFERENCE, make_driver  # noqa: E402
from clients.drivers.driver import ToolchainMissing, Unsupported  # noqa: E402
from clients.scenarios import SCENARIOS, Scenario, Scene  # noqa: E402

PAGE = ROOT / "docs" / "clients.md"


@dataclass(frozen=True, slots=True)
class Passed:
    """The scenario went as Kafka promises."""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The client cannot play the scenario."""

    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The scenario went differently."""

    how: str


Outcome = Passed | NotApplicable | Failed


@dataclass(frozen=True, slots=True)
class Column:
    """A client, its version, and how each scenario went, by name."""

    client: str
    version: str
    outcomes: dict[str, Outcome]


def main() -> int:
    """Play everything; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--print", action="store_true", help="show the page, and leave docs/clients.md alone")
    parser.add_argument("clients", nargs="*", default=list(DRIVERS), help="only these; then only shown")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # clients tell their errors twice

    product = product_under_test()
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(product, Path(folder))
        try:
            columns = [play_all(name, broker) for name in arguments.clients]
        finally:
            broker.stop()
    page = render(product, columns)
    if arguments.print or set(arguments.clients) != set(DRIVERS):
        sys.stdout.write(page)
    else:
        PAGE.write_text(page)
    outcomes = [outcome for column in columns for outcome in column.outcomes.values()]
    return int(any(isinstance(outcome, Failed) for outcome in outcomes))


def play_all(name: str, broker: BrokerProcess) -> Column:
    """One client's column."""
    try:
        client = make_driver(name, broker.address)
    except ToolchainMissing as missing:
        sys.stderr.write(f"{name}: {missing}\n")
        why = NotApplicable(f"not tried: {missing}")
        return Column(name, "", {scenario.name: why for scenario in SCENARIOS})
    reference = make_driver(REFERENCE, broker.address)
    outcomes: dict[str, Outcome] = {}
    try:
        for scenario in SCENARIOS:
            outcomes[scenario.name] = play(scenario, Scene(client, reference))
            sys.stderr.write(f"{name}: {scenario.name}: {_word(outcomes[scenario.name])}\n")
        return Column(name, client.version, outcomes)
    finally:
        client.close()
        reference.close()


def play(scenario: Scenario, scene: Scene) -> Outcome:
    """How one scenario goes with one client."""
    try:
        scenario.play(scene)
    except Unsupported as why:
        return NotApplicable(str(why))
    except Exception as failed:  # noqa: BLE001  # whatever went wrong belongs into the table
        return Failed(f"{type(failed).__name__}: {failed}")
    return Passed()


def render(product: Product, columns: Iterable[Column]) -> str:
    """The page: the clients, the table, and why some of its cells are empty."""
    columns = list(columns)
    notes: dict[str, int] = {}

    def cell(outcome: Outcome) -> str:
        match outcome:
            case Passed():
                return "ok"
            case NotApplicable(why):
                return f"– [{notes.setdefault(why, len(notes) + 1)}]"
            case Failed(how):
                return f"**FAILED** [{notes.setdefault(_one_line(how), len(notes) + 1)}]"

    table = [
        f"| {scenario.name} | {' | '.join(cell(column.outcomes[scenario.name]) for column in columns)} |"
        for scenario in SCENARIOS
    ]
    lines = [
        f"# Clients and {product.name}",
        "",
        "Other people's clients judge the broker: each plays the same scenarios, written once in",
        "[tests/clients/scenarios.py](../tests/clients/scenarios.py), and every expectation was first met by",
        "Apache Kafka itself. `python tests/clients/matrix.py` writes this page, and the tests play the same",
        f"table. The broker here was {product.name}.",
        "",
        "| client | version | scenarios that went as they should |",
        "|---|---|---|",
        *(f"| {column.client} | {column.version or 'not tried'} | {_count(column)} |" for column in columns),
        "",
        "## The scenarios",
        "",
        "| scenario | what it shows |",
        "|---|---|",
        *(f"| {scenario.name} | {scenario.shows} |" for scenario in SCENARIOS),
        "",
        "## The table",
        "",
        f"| scenario | {' | '.join(column.client for column in columns)} |",
        f"|---|{'---|' * len(columns)}",
        *table,
    ]
    if notes:
        lines += ["", "A dash means that the client cannot play the scenario, for the reason given.", ""]
        lines += [f"{number}. {why}" for why, number in notes.items()]
    return "\n".join(lines) + "\n"


def _count(column: Column) -> str:
    played = [each for each in column.outcomes.values() if not isinstance(each, NotApplicable)]
    return f"{sum(isinstance(each, Passed) for each in played)} of {len(played)}"


def _word(outcome: Outcome) -> str:
    match outcome:
        case Passed():
            return "ok"
        case NotApplicable(why):
            return f"n/a: {why}"
        case Failed(how):
            return f"FAILED: {how}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300].replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
