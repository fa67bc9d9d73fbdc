"""`moldau sim`: run clusters in the simulator, and replay what went wrong."""

from __future__ import annotations

import dataclasses
import difflib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import click

from moldau.sim.run import Outcome, play, scenario_class
from moldau.sim.scenarios import SCENARIOS

PROCESSES = 2
# Without a terminal, progress is told in so many lines.
PROGRESS_LINES = 10


@click.command()
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Replay one run and tell what happened."
)
@click.option("--seeds", type=click.IntRange(min=1), metavar="K", help="Run K seeds of each scenario.")
@click.option(
    "--start",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="S",
    help="With --seeds: the first.",
)
@click.option("--scenario", metavar="NAME", help="Only this scenario; all of them if not given.")
@click.option("--list", "is_list", is_flag=True, help="Show the scenarios.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    seed: int | None, seeds: int | None, start: int, scenario: str | None, is_list: bool, output: str
) -> None:
    """Run clusters in the simulator under seeds, or replay one seed.

    A simulated cluster runs the real code on simulated time, network and disks. Its seed decides all that
    happens: which faults are on, when they strike, how bytes and callbacks interleave. The same seed gives
    the same run wherever the same Python runs it, down to the digest of all its events, so that a failure
    can be looked at twice.

    \b
    Examples:
      moldau sim --seeds 1000               look for trouble; a failing seed comes with its replay
      moldau sim --seed 41 --scenario echo  what happened in that run; the digest is the last line
      moldau sim --seeds 500 --start 1000   go on where an earlier search ended

    Exit codes: 0 everything held, 1 something did not, 2 wrong usage.
    """
    names = chosen_scenarios(scenario)
    if is_list:
        show(scenario_list(names), as_json=output == "json")
    elif (seed is None) == (seeds is None):
        raise click.UsageError("Say what to run: --seed N replays one run, --seeds K looks through many.")
    elif seed is not None:
        outcomes = [play(name, seed) for name in names]
        for outcome in outcomes:
            if output == "json":
                click.echo(json.dumps(dataclasses.asdict(outcome)))
            else:
                click.echo(story(outcome))
        sys.exit(not all(outcome.is_ok for outcome in outcomes))
    elif seeds is not None:
        failures = search(names, range(start, start + seeds))
        report(failures, names=names, run_count=seeds * len(names), as_json=output == "json")
        sys.exit(bool(failures))


def chosen_scenarios(name: str | None) -> list[str]:
    """The scenario of that name, or all."""
    if name is None:
        return list(SCENARIOS)
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else "moldau sim --list shows all."
        raise click.BadParameter(f"there is no '{name}'. {hint}", param_hint="--scenario")
    return [name]


def scenario_list(names: Sequence[str]) -> dict[str, str]:
    """Each scenario with the first line of its documentation."""
    return {name: (scenario_class(name).__doc__ or "").partition("\n")[0] for name in names}


def show(rows: dict[str, str], *, as_json: bool) -> None:
    """Print names and what they mean."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(map(len, rows))
    for name, meaning in rows.items():
        click.echo(f"{name:<{width}}  {meaning}")


def story(outcome: Outcome) -> str:
    """One run for people: what was on, what happened, what came of it."""
    lines = [
        f"{outcome.scenario}, seed {outcome.seed}: {'everything held' if outcome.is_ok else 'FAILED'}",
        f"faults on: {', '.join(outcome.faults) or 'none'}",
        f"{outcome.event_count} events in {outcome.virtual_ms / 1000:.3f} virtual seconds; "
        + ", ".join(f"{kind} {count}" for kind, count in outcome.counts),
        "",
        "     seconds  where        what",
        *map(str, outcome.notable),
        "",
    ]
    if outcome.failure is not None:
        lines += [outcome.failure_detail.rstrip(), "", f"failure: {outcome.failure}"]
    return "\n".join([*lines, f"digest: {outcome.digest}"])


def search(names: Sequence[str], seeds: range) -> list[Outcome]:
    """Run all seeds of all scenarios in several processes; gives the runs that failed, in order."""
    runs = [(name, seed) for seed in seeds for name in names]
    failures = []
    # Spawned, not forked: a fork copies whatever threads and state this process happens to have.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool, progress(len(runs)) as advance:
            for finished in as_completed([pool.submit(play, name, seed) for name, seed in runs]):
                outcome = finished.result()
                if not outcome.is_ok:
                    failures.append(outcome)
                advance(len(failures))
    except BrokenProcessPool:
        raise click.ClickException("A simulating process died; was it killed, or out of memory?") from None
    return sorted(failures, key=lambda outcome: (outcome.scenario, outcome.seed))


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """Something to look at: a bar on a terminal, a few lines elsewhere; each call is one run done."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("simulating", total=total)
            yield lambda failed: bar.update(
                task, advance=1, description=f"simulating, {failed} failed" if failed else "simulating"
            )
        return
    done = 0

    def advance(failed: int) -> None:
        nonlocal done
        done += 1
        if done == total or done * PROGRESS_LINES // total > (done - 1) * PROGRESS_LINES // total:
            click.echo(f"{done} of {total} runs, {failed} failed", err=True)

    yield advance


def report(failures: Sequence[Outcome], *, names: Sequence[str], run_count: int, as_json: bool) -> None:
    """Print what failed, each with the command that replays it."""
    rows = [
        {
            "scenario": outcome.scenario,
            "seed": outcome.seed,
            "failure": outcome.failure,
            "replay": f"moldau sim --seed {outcome.seed} --scenario {outcome.scenario}",
        }
        for outcome in failures
    ]
    if as_json:
        click.echo(json.dumps({"runs": run_count, "scenarios": list(names), "failed": rows}, indent=2))
        return
    for row in rows:
        click.echo(f"{row['scenario']}, seed {row['seed']}: {row['failure']}\n    {row['replay']}")
    if failures:
        click.echo(f"{len(failures)} of {run_count} runs failed.")
    else:
        click.echo(f"Everything held in {run_count} runs.")
