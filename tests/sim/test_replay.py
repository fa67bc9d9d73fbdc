"""A seed is a run: the same in every process; and the checkers find the bugs that they are there for."""

import dataclasses
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from moldau.cli import main
from moldau.cli.sim import story
from moldau.sim.cluster import Cluster
from moldau.sim.faults import FAULTS, Nemesis
from moldau.sim.run import play, play_scenario
from moldau.sim.scenarios import SCENARIOS
from moldau.sim.scenarios.echo import CHECKSUM, FRAME, Echo, EchoNode
from moldau.world.ports import Connection, Flush


class ShortEcho(Echo):
    """The echo scenario in a few virtual seconds."""

    safety_ms: ClassVar[int] = 6_000


# ---------------------------------------------------------------------------------------------- determinism

PRINT_DIGEST = """
import sys
from moldau.sim.run import play
print(play(sys.argv[1], int(sys.argv[2])).digest)
"""


def digest_in_a_new_process(scenario: str, seed: int, *, hash_seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST, scenario, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()[-1]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_equal_seeds_give_equal_digests_in_other_processes_with_other_hash_seeds(scenario: str) -> None:
    here = play(scenario, 1).digest
    assert digest_in_a_new_process(scenario, 1, hash_seed=1) == here
    assert digest_in_a_new_process(scenario, 1, hash_seed=4242) == here


def test_other_seeds_give_other_digests() -> None:
    outcomes = [play_scenario(ShortEcho(), name="echo", seed=seed) for seed in range(4)]
    assert len({outcome.digest for outcome in outcomes}) == 4


def test_a_run_does_not_depend_on_the_runs_before_it() -> None:
    first = play_scenario(ShortEcho(), name="echo", seed=5)
    play_scenario(ShortEcho(), name="echo", seed=6)
    assert play_scenario(ShortEcho(), name="echo", seed=5) == first


# What the trace says when a fault has struck.
TOLD_AS = {
    "kill": "kill",
    "power-cut": "power cut",
    "pause": "pause",
    "isolate": "cut",
    "one-way-cut": "cut",
    "reset": "reset",
    "lose-responses": "responses lost",
    "slow-network": "slow network",
    "slow-disk": "slow disk",
    "clock-jump": "clock moved",
    "disk-full": "disk full",
    "write-error": "write error ahead",
    "fsync-error": "fsync error ahead",
    "bit-flip": "bit flipped",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_strikes_and_the_cluster_heals_from_it(kind: str) -> None:
    with Cluster(kind) as cluster:
        scenario = Echo()
        nemesis = Nemesis(cluster, (), victims=scenario.build(cluster))
        nemesis.kinds = [kind]
        nemesis.start()
        cluster.run_for(5_000)
        assert cluster.trace.kinds[TOLD_AS[kind]] > 0
        nemesis.heal(scenario.core(cluster))
        scenario.heal()
        assert cluster.run_until(scenario.is_settled)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_of_the_table_can_be_played(name: str) -> None:
    outcome = play(name, 0)
    assert outcome.is_ok, story(outcome)


# ---------------------------------------------------------------------------------------------- known bugs


class HastyNode(EchoNode):
    """Acknowledges before it has flushed."""

    async def answer(self, connection: Connection, sender: str, value: int) -> None:
        connection.send([FRAME.pack(self.names.index(sender), value)])
        await super().answer(connection, sender, value)


class CarelessNode(EchoNode):
    """Overwrites its file in place, so that a power cut can empty it or tear it."""

    async def write(self) -> None:
        async with self.writing:
            file = self.world.disk.open("counters", create=True)
            body = b"".join(FRAME.pack(self.names.index(name), self.counters[name]) for name in self.counters)
            file.truncate(0)
            file.append([CHECKSUM.pack(zlib.crc32(body)), body])
            await self.world.disk.flush(Flush(files=(file,), directories=("",)))


class LazyNode(EchoNode):
    """Renames the new file into place and forgets to flush it."""

    async def write(self) -> None:
        async with self.writing:
            draft = self.world.disk.open("counters.tmp", create=True)
            body = b"".join(FRAME.pack(self.names.index(name), self.counters[name]) for name in self.counters)
            draft.truncate(0)
            draft.append([CHECKSUM.pack(zlib.crc32(body)), body])
            self.world.disk.rename("counters.tmp", "counters")
            await self.world.disk.flush(Flush(directories=("",)))


class WeakPower(ShortEcho):
    """Slow disks that lose power."""

    faults: ClassVar[Sequence[str]] = ("power-cut",)
    safety_ms: ClassVar[int] = 20_000

    def build(self, cluster: Cluster) -> Sequence[str]:
        victims = super().build(cluster)
        for node in cluster.nodes.values():
            node.disk.flush_ms = (10, 100)
        return victims


# Enough for each known bug to be found by several of them.
SEEDS = range(12)


def failures_of(node_class: type[EchoNode]) -> Iterator[str]:
    """What goes wrong with such nodes, seed by seed."""

    class Changed(WeakPower):
        pass

    Changed.node_class = node_class
    for seed in SEEDS:
        failure = play_scenario(Changed(), name="echo", seed=seed).failure
        if failure is not None:
            yield failure


def test_the_right_program_passes() -> None:
    assert list(failures_of(EchoNode)) == []


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [(HastyNode, "and its disk says"), (CarelessNode, "on disk are torn"), (LazyNode, "on disk are torn")],
)
def test_a_known_bug_is_found_within_as_many_seeds(mutant: type[EchoNode], symptom: str) -> None:
    assert any(symptom in failure for failure in failures_of(mutant))


# ---------------------------------------------------------------------------------------------- the command


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sim", *arguments])


def test_a_replay_tells_the_story_and_ends_with_the_digest() -> None:
    result = sim("--seed", "3", "--scenario", "echo")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "echo, seed 3: everything held"
    assert lines[-1] == f"digest: {play('echo', 3).digest}"
    assert any("healed" in line for line in lines)


def test_a_replay_for_scripts_is_json() -> None:
    outcome = json.loads(sim("--seed", "3", "--scenario", "echo", "-o", "json").stdout)
    assert outcome["seed"] == 3
    assert outcome["failure"] is None


def test_a_search_says_that_all_is_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moldau", "sim", "--seeds", "2", "--start", "7", "--scenario", "echo"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Everything held in 2 runs.\n"
    assert "2 of 2 runs, 0 failed" in done.stderr


def test_a_search_prints_failing_seeds_with_their_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = dataclasses.replace(play_scenario(ShortEcho(), name="echo", seed=9), failure="Lost: it")
    monkeypatch.setattr("moldau.cli.sim.search", lambda names, seeds: [failed])
    result = sim("--seeds", "10", "--scenario", "echo")
    assert result.exit_code == 1
    assert "echo, seed 9: Lost: it\n    moldau sim --seed 9 --scenario echo\n" in result.stdout
    assert "1 of 10 runs failed." in result.stdout


MISTAKES = {
    "nothing to do": ((), "--seed N replays one run"),
    "both": (("--seed", "1", "--seeds", "2"), "--seed N replays one run"),
    "a scenario that nearly exists": (("--seed", "1", "--scenario", "ecco"), "Did you mean 'echo'?"),
    "a scenario that does not exist": (("--seed", "1", "--scenario", "zz"), "moldau sim --list"),
    "a seed below zero": (("--seed", "-1"), "not in the range"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence(what: str) -> None:
    arguments, answer = MISTAKES[what]
    result = sim(*arguments)
    assert result.exit_code == 2
    assert answer in result.stderr
    assert "Traceback" not in result.stderr


def test_the_list_says_what_each_scenario_is() -> None:
    lines = [line.split(maxsplit=1) for line in sim("--list").stdout.splitlines()]
    assert [name for name, _ in lines] == list(SCENARIOS)
    assert any(name == "echo" and meaning.startswith("Nodes write down") for name, meaning in lines)
