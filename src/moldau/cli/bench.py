"""`moldau bench`: measure a cluster with prepared work, and check all of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, client_settings, cluster_options, parse_pairs
from moldau.cli._errors import Failure, OutOfReach, one_line_errors
from moldau.cli._output import Json, note, output_option, print_json, print_table
from moldau.cli._progress import progress

if TYPE_CHECKING:
    from moldau.bench.site import Site
    from moldau.bench.workloads import Outcome, Scale, Workload

ROUNDS: Final = 3


@click.command("bench")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Only show the workloads.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True)
@click.option(
    "--quick", "size", flag_value="quick", default="quick", help="A second or less each: the default."
)
@click.option("--full", "size", flag_value="full", help="Several seconds each.")
@click.option("--tiny", "size", flag_value="tiny", help="Only to see that everything works.")
@click.option(
    "-c",
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the topics that are made for it; may be given several times.",
)
@click.option("--server-pid", type=int, metavar="PID", help="Count this process's CPU time, too.")
@output_option
@cluster_options
def command(
    target: Target,
    names: tuple[str, ...],
    is_list: bool,
    rounds: int,
    size: str,
    configs: tuple[str, ...],
    server_pid: int | None,
    output: str,
) -> None:
    """Measure a cluster with work of which every byte is checked.

    Each WORKLOAD runs once in each round, all of them if none is named; a word stands for all whose name
    begins with it. Topics are made for it, and deleted. Figures are medians, with the lowest and the highest
    of the rounds. What runs beside them on the machine counts, too: compare figures of one sitting only.

    \b
    Examples:
      moldau bench --list
      moldau bench latency connections --rounds 5
      moldau bench batches -c moldau.durability=replicated --server-pid 4711
      moldau bench -b kafka.example:9092 -o json
    """
    from moldau.bench.site import Site
    from moldau.bench.workloads import FULL, QUICK, TINY

    chosen = chosen_workloads(names)
    if is_list:
        show_list(chosen, as_json=output == "json")
        return
    if target.settings.get("security.protocol", "PLAINTEXT") != "PLAINTEXT":
        left_out = ", ".join(workload.name for workload in chosen if workload.needs_plaintext)
        chosen = [workload for workload in chosen if not workload.needs_plaintext]
        if not chosen:
            raise click.UsageError(f"There is nothing to measure: {left_out} need a listener without TLS.")
        if left_out:
            note(f"Left out, because they need a listener without TLS: {left_out}.")
    site = Site(
        target.bootstrap_servers,
        parse_pairs(configs),
        server_pid,
        timeout_s=max(target.timeout_s, 30),
        client_settings=client_settings(target),
    )
    scale = {"quick": QUICK, "full": FULL, "tiny": TINY}[size]
    outcomes = measure(chosen, site, scale, rounds=rounds)
    if output == "json":
        print_json([as_json(workload, outcomes[workload.name]) for workload in chosen])
    else:
        show(chosen, outcomes)


def chosen_workloads(names: Sequence[str]) -> list[Workload]:
    """The workloads whose names begin with one of the words, or all."""
    from moldau.bench.workloads import WORKLOADS

    for name in names:
        if not any(workload.name.startswith(name) for workload in WORKLOADS):
            near = difflib.get_close_matches(name, [workload.name for workload in WORKLOADS], n=1)
            hint = f"Did you mean '{near[0]}'?" if near else "moldau bench --list shows all."
            raise click.BadParameter(f"there is no '{name}'. {hint}", param_hint="WORKLOAD")
    return [workload for workload in WORKLOADS if not names or workload.name.startswith(tuple(names))]


def measure(
    workloads: Sequence[Workload], site: Site, scale: Scale, *, rounds: int
) -> dict[str, list[Outcome]]:
    """The outcomes of every round; one that cannot be trusted ends the command."""
    outcomes: dict[str, list[Outcome]] = {workload.name: [] for workload in workloads}
    with progress("measuring", total=rounds * len(workloads)) as advance:
        for _ in range(rounds):
            for workload in workloads:
                with told_in_a_line(workload):
                    outcomes[workload.name].append(workload.run(site, scale))
                advance(1)
    return outcomes


@contextmanager
def told_in_a_line(workload: Workload) -> Iterator[None]:
    """Turn what a cluster can do wrong into a failure."""
    from moldau.bench.payloads import WrongPayload
    from moldau.bench.pipeline import Refused

    try:
        with one_line_errors():
            yield
    except WrongPayload as error:
        raise Failure(f"{workload.name}: what was read is not what was written: {error}.") from error
    except Refused as error:
        raise Failure(f"{workload.name}: {error}.") from error
    except ProcessLookupError as error:
        raise click.UsageError(f"There is no process {error}: --server-pid.") from error
    except OSError as error:
        raise OutOfReach(f"{workload.name}: {error.strerror or error}.") from error


# ---------------------------------------------------------------- showing


def show_list(workloads: Sequence[Workload], *, as_json: bool) -> None:
    """Names, and what is done."""
    if as_json:
        print_json({workload.name: workload.title for workload in workloads})
    else:
        print_table(["WORKLOAD", "WHAT"], [(workload.name, workload.title) for workload in workloads])


def show(workloads: Sequence[Workload], outcomes: dict[str, list[Outcome]]) -> None:
    """A line for each reading, with the CPU of both sides."""
    from moldau.bench.figures import spread

    rows = []
    for workload in workloads:
        done = outcomes[workload.name]
        for index, reading in enumerate(workload.readings):
            what = workload.title if len(workload.readings) == 1 else f"{workload.title}: {reading.name}"
            figure = spread([reading.of(each) for each in done])
            cpu = cpu_per_million(done) if not index else (None, None)
            rows.append((what, str(figure), reading.unit, *cpu))
    print_table(["WORK", "MEDIAN (LOWEST–HIGHEST)", "UNIT", "SERVER CPU s/million", "CLIENT CPU"], rows)


def cpu_per_million(done: Sequence[Outcome]) -> tuple[str | None, str]:
    """Medians of the server's CPU seconds for a million messages, if they are known, and of ours."""
    from moldau.bench.figures import median, short

    ours = short(median([each.client_cpu_s * 1e6 / each.messages for each in done]))
    theirs = [each.server_cpu_s * 1e6 / each.messages for each in done if each.server_cpu_s is not None]
    return short(median(theirs)) if theirs else None, ours


def as_json(workload: Workload, done: Sequence[Outcome]) -> Json:
    """Everything that was read, round by round."""
    return {
        "workload": workload.name,
        "title": workload.title,
        "readings": [
            {"name": reading.name, "unit": reading.unit, "rounds": [reading.of(each) for each in done]}
            for reading in workload.readings
        ],
        "messages": [each.messages for each in done],
        "seconds": [each.seconds for each in done],
        "server_cpu_seconds": [each.server_cpu_s for each in done],
        "client_cpu_seconds": [each.client_cpu_s for each in done],
    }
