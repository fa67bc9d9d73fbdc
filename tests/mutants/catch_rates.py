"""How often random seeds catch each mutant of a scenario.

    python -m mutants.catch_rates broker 40
    python -m mutants.catch_rates raft 30 "vote not flushed"

with `tests` and `src` on the path; docs/track-record.md keeps the figures.
"""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from mutants import (
    broker_acknowledged_before_flush,
    broker_checkpoint_in_place,
    broker_cut_at_first_bad_batch,
    broker_epoch_bumped_on_doubt,
    broker_offset_of_the_watermark,
    broker_producers_die_with_segments,
    broker_recovery_not_flushed,
    broker_recovery_point_ahead,
    group_answers_before_loaded,
    group_commit_answered_before_flush,
    group_holder_lost_on_reassignment,
    group_late_request_counts,
    group_silence_confirms_revocation,
    group_stale_commit_counts,
    raft_acknowledged_before_flush,
    raft_older_epoch_committed,
    raft_snapshot_off_by_one,
    raft_truncated_to_high_watermark,
    raft_vote_not_flushed,
)

from moldau.sim.run import Outcome, play

Mutant = Callable[[], AbstractContextManager[None]]

MUTANTS: dict[str, dict[str, Mutant]] = {
    "raft": {
        "vote not flushed": raft_vote_not_flushed.applied,
        "older epoch committed": raft_older_epoch_committed.applied,
        "acknowledged before flush": raft_acknowledged_before_flush.applied,
        "truncated to the high watermark": raft_truncated_to_high_watermark.applied,
        "snapshot off by one": raft_snapshot_off_by_one.applied,
    },
    "broker": {
        "cut at the first bad batch": broker_cut_at_first_bad_batch.applied,
        "epoch bumped on doubt": broker_epoch_bumped_on_doubt.applied,
        "producers die with segments": broker_producers_die_with_segments.applied,
        "offset of the watermark": broker_offset_of_the_watermark.applied,
        "acknowledged before flush": broker_acknowledged_before_flush.applied,
        "checkpoint in place": broker_checkpoint_in_place.applied,
        "recovery not flushed": broker_recovery_not_flushed.applied,
        "recovery point ahead": broker_recovery_point_ahead.applied,
    },
    "groups": {
        "commit answered before flush": group_commit_answered_before_flush.applied,
        "answers before loaded": group_answers_before_loaded.applied,
        "holder lost on reassignment": group_holder_lost_on_reassignment.applied,
        "silence confirms revocation": group_silence_confirms_revocation.applied,
        "late request counts": group_late_request_counts.applied,
        "stale commit counts": group_stale_commit_counts.applied,
    },
}


def outcomes_that_catch(scenario: str, mutant: str, seeds: range) -> list[Outcome]:
    """The runs in which a checker notices the mutant."""
    with MUTANTS[scenario][mutant]():
        outcomes = [play(scenario, seed) for seed in seeds]
    return [outcome for outcome in outcomes if not outcome.is_ok]


def sight(outcome: Outcome) -> str:
    """What was seen, without the numbers that differ from seed to seed."""
    words = (outcome.failure or "").split()
    return " ".join(word for word in words[:14] if not any(map(str.isdigit, word)))


if __name__ == "__main__":
    scenario, count, *names = sys.argv[1:]
    for name in names or MUTANTS[scenario]:
        caught = outcomes_that_catch(scenario, name, range(int(count)))
        first = [outcome.seed for outcome in caught[:1]]
        sys.stdout.write(f"{name}: {len(caught)} of {count}, first at seed {first}\n")
        for what, times in Counter(map(sight, caught)).most_common(4):
            sys.stdout.write(f"    {times} x {what}\n")
        sys.stdout.flush()
