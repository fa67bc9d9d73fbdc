"""Every metric that there is, is documented, and what is drawn exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from node.broker import Broker, batch

from moldau.cli._serving import metrics_of_process

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:moldau|process)_[a-z_]+")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
SAMPLE = re.compile(r"(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})?")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that has done something of everything."""
    with Broker() as made:
        made.create_topic("orders")
        made.append([b"a"], "orders")
        made.produce(batch([b"a"]), "payments")
        made.run_for(5_000)
        yield made


def kinds(broker: Broker) -> dict[str, str]:
    return broker.node.metrics.names() | metrics_of_process().names()


def test_the_documentation_has_every_metric_with_its_kind(broker: Broker) -> None:
    documented = {name: kind for name, kind, _ in ROW.findall((ROOT / "docs" / "operating.md").read_text())}
    assert documented == kinds(broker)


def test_the_documentation_has_the_labels(broker: Broker) -> None:
    documented = {
        name: labels.strip() for name, _, labels in ROW.findall((ROOT / "docs" / "operating.md").read_text())
    }
    found: dict[str, str] = {}
    for sample in [*broker.node.metrics.snapshot(), *metrics_of_process().snapshot()]:
        match = SAMPLE.fullmatch(sample)
        assert match is not None, sample
        name = match[1] if match[1] in documented else sample.partition("{")[0]
        labels = re.findall(r'(\w+)="', match[2] or "")
        found[name] = ", ".join(label for label in labels if label != "le")
    assert found == documented


def test_the_dashboard_draws_what_exists(broker: Broker) -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "moldau.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [str(variable["query"]) for variable in dashboard["templating"]["list"]]
    drawn = {name for query in queries for name in NAME.findall(query)}
    known = kinds(broker)
    histograms = {
        f"{name}_{part}"
        for name, kind in known.items()
        if kind == "histogram"
        for part in ("bucket", "sum", "count")
    }
    assert len(drawn) > 20
    assert drawn <= known.keys() | histograms


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "moldau.json").read_text())
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
