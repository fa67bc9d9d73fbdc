"""Kills driver, Python workers and broker under three streaming queries, and checks what they have written.

    python -m spark.chaos --kills 30 --seed 1

with `tests` on the path; `make chaos` does so. The same seed kills the same victims at the same kinds of
moments; what they are doing then differs from run to run. Ends with 0 if all holds, with 1 if anything is
lost, doubled or wrong, and with 2 where Spark cannot run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import randrange

from spark.chaos.plan import QUERIES, plan
from spark.chaos.run import play
from spark.conftest import why_no_spark


def main() -> int:
    """One run from the command line."""
    parser = argparse.ArgumentParser(
        prog="chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30, help="how many (default: 30)")
    parser.add_argument("--seed", type=int, help="for victims and moments (default: any)")
    parser.add_argument("--rate", type=int, default=200, help="inputs a second (default: 200)")
    parser.add_argument("--json", type=Path, help="a file for the outcome")
    parser.add_argument("--keep", type=Path, help="a new folder for all data and logs, to be kept")
    parser.add_argument("--mutant", metavar="MODULE:CLASS", help="a data source to use in place of Moldau's")
    options = parser.parse_args()
    if why := why_no_spark():
        _say(f"Error: {why}")
        return 2
    seed = randrange(10_000) if options.seed is None else options.seed
    kills = plan(seed, options.kills)
    mutants = dict.fromkeys(QUERIES, options.mutant) if options.mutant else {}
    if options.keep is None:
        folder = Path(tempfile.mkdtemp(prefix="moldau-chaos-"))
    else:
        folder = options.keep.absolute()
        folder.mkdir(parents=True)
    _say(f"{options.kills} kills, seed {seed}; Spark takes a while to start")
    outcome = play(
        kills,
        folder,
        seed=seed,
        per_second=options.rate,
        sources=mutants,
        sinks=mutants,
        tell=_say,
    )
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(outcome.to_json() + "\n")
    _say(f"\n{outcome}")
    if outcome.is_ok and options.keep is None:
        shutil.rmtree(folder)
    else:
        # What happened once need not happen again.
        _say(f"data and logs are in {folder}")
    return 0 if outcome.is_ok else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
