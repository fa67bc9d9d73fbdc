"""The results as pictures: PNG files, and bars in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compare.report import PLOTS, labels
from compare.results import SERVER_CPU, Figure, Results
from compare.rows import IN_MEMORY, PAIRS, ROWS
from moldau.bench.figures import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

COLOURS = {
    "moldau-replicated": "#1f77b4",
    "moldau-flushed": "#7fb3d9",
    "kafka": "#d62728",
    "kafka-flushed": "#ec9a9b",
    "bare": "#777777",
    "bare-flushed": "#bbbbbb",
}
_BAR_WIDTH = 40
_INCHES = (8.0, 4.2)
_DOTS_PER_INCH = 80


def save_plots(results: Results, folder: Path) -> None:
    """Write every picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, what in PLOTS.items():
        drawn = _PICTURES[name]
        figure, axes = pyplot.subplots(1, drawn.panels, figsize=_INCHES, squeeze=False)
        drawn.draw(results, list(axes[0]))
        figure.suptitle(what[0].upper() + what[1:], fontsize=11)
        known = dict(
            pair for panel in axes[0] for pair in zip(*panel.get_legend_handles_labels()[::-1], strict=True)
        )
        figure.legend(known.values(), known.keys(), loc="lower center", ncols=3, fontsize=7, frameon=False)
        figure.tight_layout(rect=(0, 0.08, 1, 1))
        figure.savefig(folder / name, dpi=_DOTS_PER_INCH, metadata={"Software": None})
        pyplot.close(figure)


class _Picture:
    def __init__(self, draw: Callable[[Results, list[Axes]], None], panels: int = 1) -> None:
        self.draw = draw
        self.panels = panels


def _draw_produce(results: Results, axes: list[Axes]) -> None:
    chosen = _of_rows(results, [row.name for row in ROWS if row.name.startswith("produce-")], "rate")
    _bars(axes[0], _by_title(chosen), log=False, unit="messages/s")


def _draw_latency(results: Results, axes: list[Axes]) -> None:
    bars: dict[str, dict[str, float]] = {}
    for each in results.figures:
        if each.row == "latency" and each.unit == "ms":
            bars.setdefault(each.reading, {}).update(_medians(each))
    _bars(axes[0], bars, log=True, unit="ms")


def _draw_scaling(results: Results, axes: list[Axes]) -> None:
    for panel, kind in zip(axes, ("connections", "partitions"), strict=True):
        lines: dict[str, list[tuple[int, float]]] = {}
        for each in results.figures:
            if each.row.startswith(f"{kind}-") and each.reading == "rate":
                count = int(each.row.rpartition("-")[2])
                for who, value in _medians(each).items():
                    lines.setdefault(who, []).append((count, value))
        for who, points in lines.items():
            panel.plot(
                *zip(*sorted(points), strict=True), marker="o", color=COLOURS[who], label=labels()[who]
            )
        panel.set(xscale="log", yscale="log", xlabel=kind, ylabel="messages/s")
        panel.grid(alpha=0.3)


def _draw_cpu(results: Results, axes: list[Axes]) -> None:
    kinds = ("produce-", "tail-", "history-")
    chosen = [
        each
        for each in results.figures
        if each.reading == SERVER_CPU and each.pair == IN_MEMORY.name and each.row.startswith(kinds)
    ]
    _bars(axes[0], _by_title(chosen), log=True, unit="CPU s/million messages")


def _draw_process(results: Results, axes: list[Axes]) -> None:
    wanted = (("start-up", "resident memory"), ("memory-loaded", "resident memory"), ("start-up", "time"))
    for panel, (row, reading), title in zip(
        axes, wanted, ("idle, MB", "loaded, MB", "start, s"), strict=True
    ):
        found = results.figure(row, IN_MEMORY.name, reading)
        for index, (who, value) in enumerate(_medians(found).items() if found else ()):
            panel.bar(index, value, color=COLOURS[who], label=who.partition("-")[0])
            panel.text(index, value, short(value), ha="center", va="bottom", fontsize=8)
        panel.set(xticks=[], title=title)
        panel.margins(y=0.15)


_PICTURES = {
    "produce.png": _Picture(_draw_produce),
    "latency.png": _Picture(_draw_latency),
    "scaling.png": _Picture(_draw_scaling, panels=2),
    "cpu.png": _Picture(_draw_cpu),
    "process.png": _Picture(_draw_process, panels=3),
}


def _of_rows(results: Results, rows: Sequence[str], reading: str) -> list[Figure]:
    return [each for each in results.figures if each.row in rows and each.reading == reading]


def _by_title(chosen: Sequence[Figure]) -> dict[str, dict[str, float]]:
    bars: dict[str, dict[str, float]] = {}
    for each in chosen:
        medians = {who: value for who, value in _medians(each).items() if not who.startswith("bare")}
        bars.setdefault(each.title, {}).update(medians)
    return bars


def _medians(figure: Figure) -> dict[str, float]:
    found = {who: figure.spread_of(who) for who in figure.values}
    return {who: spread.median for who, spread in found.items() if spread is not None}


def _bars(axes: Axes, bars: dict[str, dict[str, float]], *, log: bool, unit: str) -> None:
    """Groups of horizontal bars, the first on top."""
    shown = [who for who in COLOURS if any(who in values for values in bars.values())]
    height = 0.8 / max(len(shown), 1)
    for place, who in enumerate(shown):
        rows = [index for index, values in enumerate(bars.values()) if who in values]
        lengths = [values[who] for values in bars.values() if who in values]
        axes.barh(
            [row + place * height for row in rows], lengths, height, color=COLOURS[who], label=labels()[who]
        )
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(bars))], list(bars), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.xaxis.set_major_formatter("{x:,g}")
    if log:
        axes.set_xscale("log")
    axes.grid(axis="x", alpha=0.3)


# ---------------------------------------------------------------- in the terminal


def show(results: Results, console: Console) -> None:
    """Every figure as bars, the longest as wide as fits, and how we stand."""
    pairs = {pair.name: pair for pair in PAIRS}
    heading = ""
    for each in results.figures:
        if each.unit == "s/million":
            continue
        pair = pairs[each.pair]
        medians = _medians(each)
        if not medians:
            continue
        if each.group != heading:
            heading = each.group
            console.print(f"\n[bold]{heading}")
        advantage = each.advantage(pair.ours.name, pair.theirs.name)
        ahead = "" if advantage is None else f", Moldau {short(advantage)} ×"
        console.print(f"  {each.title}: {each.reading} in {each.unit}{ahead}", soft_wrap=True)
        for who, value in medians.items():
            bar = "█" * max(1, round(_BAR_WIDTH * value / max(medians.values())))
            console.print(
                f"    {who:<18}[{COLOURS[who]}]{bar}[/] {each.spread_of(who)}",
                highlight=False,
                soft_wrap=True,
            )
    for text in (*results.missing, *results.failures):
        console.print(f"[yellow]missing or failed: {text}")
