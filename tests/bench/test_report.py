"""How a comparison is kept and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("confluent_kafka")

from compare.report import BEGIN, END, behind, between_markers, markdown
from compare.results import SERVER_CPU, Figure, Results
from compare.rows import IN_MEMORY, ON_DISK, ROWS
from compare.turns import figures, steps

from moldau.bench.workloads import Outcome

OURS, THEIRS = IN_MEMORY.ours.name, IN_MEMORY.theirs.name


def figure(ours: list[float | None], theirs: list[float | None], *, is_more_better: bool = True) -> Figure:
    values = {OURS: ours, THEIRS: theirs}
    return Figure("row", "group", "title", IN_MEMORY.name, "rate", "messages/s", is_more_better, values)


def test_an_advantage_is_the_median_over_rounds_each_by_itself() -> None:
    # The machine was slow in the second round, for both: that changes no ratio.
    assert figure([200.0, 20.0, 300.0], [100.0, 10.0, 100.0]).advantage(OURS, THEIRS) == 2.0


def test_less_may_be_better() -> None:
    assert figure([1.0], [4.0], is_more_better=False).advantage(OURS, THEIRS) == 4.0


def test_a_round_that_failed_counts_for_nobody() -> None:
    assert figure([None, 50.0], [100.0, 100.0]).advantage(OURS, THEIRS) == 0.5
    assert figure([None], [100.0]).advantage(OURS, THEIRS) is None
    assert figure([None], [100.0]).spread_of(OURS) is None


def test_those_behind_are_ranked() -> None:
    even, ahead = figure([100.0], [101.0]), figure([200.0], [100.0])
    worse, worst = figure([50.0], [100.0]), figure([10.0], [100.0])
    results = Results({}, 1, figures=[even, worse, ahead, worst])
    assert behind(results) == [(0.1, worst), (0.5, worse)]


def test_results_come_back_from_json() -> None:
    results = Results({"machine": "this"}, 3, ["Kafka: no Java"], ["a turn"], [figure([1.0, None], [2.0])])
    assert Results.from_json(results.to_json()) == results


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert between_markers(page, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(AssertionError):
        between_markers("no markers", "new")


def test_the_page_names_who_is_missing_and_what_failed() -> None:
    page = markdown(
        Results({}, 1, ["Apache Kafka: java is not installed"], ["latency, kafka: late"]), plots="x"
    )
    assert "| missing | Apache Kafka: java is not installed |" in page
    assert "| failed turns | latency, kafka: late |" in page
    assert "There was nobody to compare with." in page


def test_the_table_shows_a_median_its_spread_and_the_ratio() -> None:
    page = markdown(Results({}, 3, figures=[figure([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])]), plots="x")
    assert "| title | messages/s | 2.00 (1.00–3.00) | 4.00 (4.00–4.00) | 0.500 × | – |" in page
    assert "1. group, title, rate: 2.00 times worse" in page


def test_contenders_take_turns_in_either_order() -> None:
    servers = ["moldau", "kafka", "bare"]
    there = [step.key for step in steps(ROWS[:1], servers, is_reversed=False)]
    back = [step.key for step in steps(ROWS[:1], servers, is_reversed=True)]
    assert [who for _, _, who in there] == [OURS, THEIRS, IN_MEMORY.limit.name]
    assert back == there[::-1]


def test_a_server_that_is_missing_takes_no_turn() -> None:
    taken = {step.contender.server for step in steps(ROWS, ["moldau"], is_reversed=False)}
    assert taken == {"moldau"}


def test_cpu_is_told_per_million_messages() -> None:
    row = ROWS[0]
    done = Outcome(messages=2_000, payload_bytes=0, seconds=1.0, client_cpu_s=0.002, server_cpu_s=0.004)
    made = list(figures([row], {(row.name, IN_MEMORY.name, OURS): [done, None]}))
    assert [(each.reading, each.values[OURS]) for each in made] == [
        ("rate", [2_000.0, None]),
        (SERVER_CPU, [2.0, None]),
        ("client CPU", [1.0, None]),
    ]


def test_every_row_has_a_name_of_its_own_and_a_pair() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.pairs for row in ROWS)
    assert {pair.name for row in ROWS for pair in row.pairs} == {IN_MEMORY.name, ON_DISK.name}


def test_pictures_are_drawn_of_whatever_there_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from compare.plots import save_plots
    from compare.report import PLOTS

    save_plots(Results({}, 1, figures=[figure([1.0], [2.0])]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(PLOTS)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
