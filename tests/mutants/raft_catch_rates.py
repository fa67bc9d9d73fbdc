"""How often random seeds catch each mutant of the quorum.

    python -m mutants.raft_catch_rates 100

with `tests` and `src` on the path; docs/track-record.md keeps the figures.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from mutants import (
    raft_acknowledged_before_flush,
    raft_older_epoch_committed,
    raft_snapshot_off_by_one,
    raft_truncated_to_high_watermark,
    raft_vote_not_flushed,
)

from moldau.sim.run import play

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "vote not flushed": raft_vote_not_flushed.applied,
    "older epoch committed": raft_older_epoch_committed.applied,
    "acknowledged before flush": raft_acknowledged_before_flush.applied,
    "truncated to the high watermark": raft_truncated_to_high_watermark.applied,
    "snapshot off by one": raft_snapshot_off_by_one.applied,
}


def seeds_that_catch(mutant: str, seeds: range) -> list[int]:
    """The seeds under which a checker notices the mutant."""
    with MUTANTS[mutant]():
        return [seed for seed in seeds if not play("raft", seed).is_ok]


if __name__ == "__main__":
    count = int(sys.argv[1])
    for name in MUTANTS:
        caught = seeds_that_catch(name, range(count))
        sys.stdout.write(f"{name}: {len(caught)} of {count}, first at seed {caught[:1]}\n")
        sys.stdout.flush()
