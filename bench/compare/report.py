"""The results as Markdown, for docs/performance.md: a table for each pair, CPU, and who is behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from compare.results import CLIENT_CPU, CPU_UNIT, SERVER_CPU, Figure, Results
from compare.rows import PAIRS, Pair
from moldau.bench.figures import Spread, short

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PLOTS = {
    "produce.png": "messages a second written through librdkafka",
    "latency.png": "end-to-end latency at 1,000 messages a second",
    "scaling.png": "messages a second over connections and over partitions",
    "cpu.png": "server CPU per million messages",
    "process.png": "memory, and time to start",
}
# Where a difference is no more than this, the machine may have made it.
_EVEN = 1.05


def between_markers(page: str, generated: str, *, begin: str = BEGIN, end: str = END) -> str:
    """The page with what stands between the markers replaced."""
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    assert found_begin and found_end, "the page has both markers"
    return f"{before}{begin}\n{generated.strip()}\n{end}{after}"


def markdown(results: Results, *, plots: str) -> str:
    """Everything that is generated; `plots` is where the pictures are, seen from the page."""
    return "\n".join(
        line
        for part in (
            facts(results),
            *(pair_table(results, pair) for pair in PAIRS),
            cpu_table(results),
            ranking(results),
            (line for name, what in PLOTS.items() for line in (f"![{what}]({plots}/{name})", "")),
        )
        for line in part
    )


def facts(results: Results) -> Iterator[str]:
    """On what, when and how it was measured."""
    yield "| | |"
    yield "|---|---|"
    for name, text in results.facts.items():
        yield f"| {name} | {text} |"
    yield f"| rounds | {results.rounds}, after two to warm up |"
    yield f"| missing | {'; '.join(results.missing) or 'nobody'} |"
    yield f"| failed turns | {'; '.join(results.failures) or 'none'} |"
    yield ""


def pair_table(results: Results, pair: Pair) -> Iterator[str]:
    """One pair, a line for each reading."""
    chosen = [each for each in results.figures if each.pair == pair.name and each.unit != CPU_UNIT]
    yield f"### {pair.title}"
    yield ""
    yield f"| work | | {pair.ours.label} | {pair.theirs.label} | Moldau is | {pair.limit.label} |"
    yield "|---|---|--:|--:|--:|--:|"
    for group, members in groupby(chosen, key=lambda each: each.group):
        yield f"| **{group}** | | | | | |"
        for each in members:
            is_single = sum(other.row == each.row for other in chosen) == 1
            title = each.title if is_single else f"{each.title}: {each.reading}"
            cells = (
                *(text_of(each.spread_of(who.name)) for who in (pair.ours, pair.theirs)),
                verdict(each.advantage(pair.ours.name, pair.theirs.name)),
                text_of(each.spread_of(pair.limit.name)),
            )
            yield f"| {title} | {each.unit} | {' | '.join(cells)} |"
    yield ""


def cpu_table(results: Results) -> Iterator[str]:
    """CPU seconds per million messages, of servers and clients apart."""
    yield "### CPU seconds per million messages"
    yield ""
    yield "The client is the same on both sides; where it needs more than the server, it sets the pace."
    yield ""
    for pair in PAIRS:
        ours, theirs, limit = pair.ours.label, pair.theirs.label, pair.limit.label
        yield f"| work | {ours} | {theirs} | Moldau needs | {limit} | client |"
        yield "|---|--:|--:|--:|--:|--:|"
        for each in results.figures:
            if each.pair == pair.name and each.reading == SERVER_CPU:
                client = results.figure(each.row, pair.name, CLIENT_CPU)
                needed = each.advantage(pair.ours.name, pair.theirs.name)
                cells = (
                    *(text_of(each.spread_of(who.name)) for who in (pair.ours, pair.theirs)),
                    "" if needed is None else f"{short(1 / needed)} ×",
                    text_of(each.spread_of(pair.limit.name)),
                    "" if client is None else median_of(client.spread_of(pair.ours.name)),
                )
                yield f"| {each.group}: {each.title} | {' | '.join(cells)} |"
        yield ""


def behind(results: Results) -> list[tuple[float, Figure]]:
    """Where Moldau is behind, the worst first."""
    pairs = {pair.name: pair for pair in PAIRS}
    found = []
    for each in results.figures:
        pair = pairs[each.pair]
        ratio = each.advantage(pair.ours.name, pair.theirs.name)
        if ratio is not None and ratio < 1 / _EVEN and each.reading != CLIENT_CPU:
            found.append((ratio, each))
    return sorted(found, key=lambda one: one[0])


def ranking(results: Results) -> Iterator[str]:
    """The same as a list."""
    yield "### Where Moldau is behind"
    yield ""
    if not any("kafka" in name for each in results.figures for name in each.values):
        yield "There was nobody to compare with."
    for ratio, each in behind(results):
        flush = "" if each.pair == PAIRS[0].name else ", flushed"
        yield f"1. {each.group}, {each.title}, {each.reading}{flush}: {short(1 / ratio)} times worse"
    yield ""


def text_of(spread: Spread | None) -> str:
    """A figure with its spread, or nothing."""
    return "–" if spread is None else str(spread)


def median_of(spread: Spread | None) -> str:
    """A figure without it."""
    return "–" if spread is None else short(spread.median)


def verdict(advantage: float | None) -> str:
    """How many times as good, for the eye: ahead in bold."""
    if advantage is None:
        return "–"
    text = f"{short(advantage)} ×"
    return f"**{text}**" if advantage > _EVEN else text


def labels(pairs: Iterable[Pair] = PAIRS) -> dict[str, str]:
    """What to call contenders where Markdown is not understood."""
    return {
        who.name: who.label.replace("`", "") for pair in pairs for who in (pair.ours, pair.theirs, pair.limit)
    }
