"""Spark with the format `moldau` beside Spark with its own connector for Kafka, in turns, in one run.

    python bench/spark.py [--rounds N] [--only ROW] [--write] [--show FILE]

One Spark session and one Moldau broker serve both. `--write` puts the figures into docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from compare.memory import touch_free_memory
from compare.report import between_markers
from compare.results import Results, read_results
from compare.spark_report import BEGIN, END, markdown, show
from compare.spark_turns import FULL, OURS, ROWS, THEIRS, compare, turns_total
from comparison import FOLDER, PAGE, facts, progress

JSON = FOLDER / "spark.json"


def main() -> int:
    """Compare, show, and perhaps write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--only", action="append", metavar="ROW", help="rows whose name begins so")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/performance.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="put the figures into a file")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: show an earlier run")
    asked = parser.parse_args()
    results = read_results(asked.show) if asked.show else measure(asked)
    from rich.console import Console

    show(results, Console())
    if asked.json:
        asked.json.write_text(results.to_json())
    if asked.write:
        JSON.write_text(results.to_json())
        page = between_markers(PAGE.read_text(), markdown(results), begin=BEGIN, end=END)
        PAGE.write_text(page)
    return bool(results.failures)


def measure(asked: argparse.Namespace) -> Results:
    """The run that was asked for."""
    import kafka_jars
    import pyspark

    rows = [row for row in ROWS if not asked.only or row.name.startswith(tuple(asked.only))]
    scale = replace(FULL, rounds=asked.rounds)
    about = facts(is_quick=False)
    try:
        connector = next(kafka_jars.spark_connector_jars().glob("spark-sql-kafka-*")).stem
    except kafka_jars.Unavailable:
        connector = "none"
    began = time.monotonic()
    touch_free_memory()
    with progress(turns_total(rows, (OURS, THEIRS), scale.rounds)) as tell:
        results = compare(
            rows,
            scale,
            facts={
                "when": about["when"],
                "run": "`make bench-spark`",
                "machine": about["machine"],
                "Spark": f"PySpark {pyspark.__version__}, local[2], its connector {connector}",
                "Python, Java": about["Python, Java"],
            },
            tell=tell,
        )
    minutes = (time.monotonic() - began) / 60
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    results.facts["took"] = f"{minutes:.1f} minutes; load averages at the end {load}"
    return results


if __name__ == "__main__":
    sys.exit(main())
