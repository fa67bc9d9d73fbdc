"""The run: every row in every round, the contenders in turns, so that a busy machine is unfair to none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import kafka_jars

from compare.results import CLIENT_CPU, CPU_UNIT, SERVER_CPU, Figure, Results
from compare.rows import PAIRS, Contender, Pair, Row, Turn
from compare.servers import CONTENDERS as PRODUCTS
from compare.servers import Product, Server, running, running_bare
from moldau.bench.payloads import WrongPayload
from moldau.bench.pipeline import Refused
from moldau.bench.workloads import Outcome, Scale
from moldau.client import ClientError, Unreachable

# What a server may do wrong. Anything else is a bug of the bench, and ends it.
SERVER_FAULTS = (Refused, WrongPayload, ClientError, Unreachable, OSError, RuntimeError)
_BARE = "bare"
# A JVM compiles what it runs most, and needs some time to know what that is.
WARM_UP_ROUNDS = 2


# The names of a row, a pair and a contender.
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One contender's turn at one row of one pair."""

    row: Row
    pair: Pair
    contender: Contender

    @property
    def key(self) -> Key:
        """By which its outcomes are kept."""
        return self.row.name, self.pair.name, self.contender.name


Progress = Callable[[str], None]


def steps(
    rows: Sequence[Row], servers: Sequence[str], *, is_reversed: bool, pairs: Sequence[Pair] = PAIRS
) -> Iterator[Step]:
    """A round: for each row who takes a turn, and in which order."""
    for row in rows:
        for pair in row.pairs:
            if pair not in pairs:
                continue
            contenders = [pair.ours, pair.theirs] + ([pair.limit] if row.limit is not None else [])
            for contender in reversed(contenders) if is_reversed else contenders:
                if contender.server in servers:
                    yield Step(row, pair, contender)


def compare(
    rows: Sequence[Row],
    scale: Scale,
    *,
    rounds: int,
    warm_up: Scale | None,
    facts: dict[str, str],
    tell: Progress,
    products: Mapping[str, Product] = PRODUCTS,
) -> Results:
    """Start everybody, let them take turns, and end everybody."""
    results = Results(facts, rounds)
    with ExitStack() as stack:
        servers = start(stack, products, results.missing, tell)
        if warm_up is not None:
            brokers = [name for name in servers if name != _BARE]
            for number in range(WARM_UP_ROUNDS):
                for step in steps(warming(rows), brokers, is_reversed=False, pairs=PAIRS[:1]):
                    tell(
                        f"warming up {number + 1} of {WARM_UP_ROUNDS}: {step.row.name}, {step.contender.name}"
                    )
                    take(step, servers[step.contender.server], warm_up, [])
        collected: dict[Key, list[Outcome | None]] = {}
        for number in range(rounds):
            for step in steps(rows, list(servers), is_reversed=number % 2 == 1):
                tell(f"round {number + 1} of {rounds}: {step.row.name}, {step.contender.name}")
                done = take(step, servers[step.contender.server], scale, results.failures)
                collected.setdefault(step.key, []).append(done)
    results.figures.extend(figures(rows, collected))
    return results


def warming(rows: Sequence[Row]) -> list[Row]:
    """The rows that a server is warmed up with."""
    return [row for row in rows if row.warms_up]


def turns_total(rows: Sequence[Row], *, rounds: int, is_warming_up: bool) -> int:
    """How often `tell` is called, for a progress bar."""
    brokers = list(PRODUCTS)
    each = len(list(steps(rows, [*brokers, _BARE], is_reversed=False)))
    warm_up = len(list(steps(warming(rows), brokers, is_reversed=False, pairs=PAIRS[:1])))
    return len(brokers) + rounds * each + is_warming_up * WARM_UP_ROUNDS * warm_up


def start(
    stack: ExitStack, products: Mapping[str, Product], missing: list[str], tell: Progress
) -> dict[str, Server]:
    """The servers that can be had here; why the others cannot is noted."""
    servers = {_BARE: stack.enter_context(running_bare())}
    for name, product in products.items():
        tell(f"starting {product.name}")
        try:
            servers[name] = stack.enter_context(running(product))
        except (kafka_jars.Unavailable, AssertionError) as why:
            if name == "moldau":
                raise
            missing.append(f"{product.name}: {str(why).splitlines()[0]}")
    return servers


def take(step: Step, server: Server, scale: Scale, failures: list[str]) -> Outcome | None:
    """One turn; None if the server failed, which is noted."""
    try:
        if step.contender is step.pair.limit:
            assert step.row.limit is not None
            return step.row.limit(server, scale, step.pair)
        done = step.row.run(Turn(step.contender, server, scale))
    except SERVER_FAULTS as why:
        failures.append(f"{step.row.name}, {step.contender.name}: {type(why).__name__}: {why}")
        return None
    return done


def figures(rows: Sequence[Row], collected: dict[Key, list[Outcome | None]]) -> Iterator[Figure]:
    """Every reading of every row, and the CPU of both sides."""
    for row in rows:
        for pair in row.pairs:
            done = {
                who: outcomes
                for (row_name, pair_name, who), outcomes in collected.items()
                if (row_name, pair_name) == (row.name, pair.name)
            }
            empty = Figure(row.name, row.group, row.title, pair.name, "", "", is_more_better=False, values={})
            for reading in row.readings:
                values = {
                    name: [None if each is None else rounded(reading.of(each)) for each in outcomes]
                    for name, outcomes in done.items()
                }
                yield replace(
                    empty,
                    reading=reading.name,
                    unit=reading.unit,
                    is_more_better=reading.is_more_better,
                    values=values,
                )
            for name, cpu_of in ((SERVER_CPU, server_cpu), (CLIENT_CPU, client_cpu)):
                values = {who: [cpu_of(each) for each in outcomes] for who, outcomes in done.items()}
                if any(value is not None for each in values.values() for value in each):
                    yield replace(empty, reading=name, unit=CPU_UNIT, values=values)


def server_cpu(done: Outcome | None) -> float | None:
    """Seconds of the server per million messages, where there were many."""
    if done is None or done.server_cpu_s is None or done.messages <= 1:
        return None
    return rounded(done.server_cpu_s * 1e6 / done.messages)


def client_cpu(done: Outcome | None) -> float | None:
    """The same of the client."""
    if done is None or done.messages <= 1:
        return None
    return rounded(done.client_cpu_s * 1e6 / done.messages)


def rounded(value: float) -> float:
    """As many digits as a figure may mean."""
    return float(f"{value:.5g}")
