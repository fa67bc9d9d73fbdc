"""Driver, workers and broker are killed under streaming queries; `make chaos` does it thirty times."""

from pathlib import Path

import pytest
from spark.chaos.plan import Kill, Moment, Role, Victim
from spark.chaos.run import play
from spark.conftest import why_no_spark

SEED = 3
PER_SECOND = 100

# Each run starts Spark twice, one after the other, in processes of its own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_no_spark()), reason=why_no_spark()),
]


def test_after_kills_of_each_kind_a_table_has_every_input_once_and_topics_have_all(tmp_path: Path) -> None:
    kills = (
        Kill(victim=Victim.WORKER, moment=Moment.WRITING, query="copy", wait_s=0.0, role=Role.TASKS),
        Kill(victim=Victim.BROKER, moment=Moment.BATCH, query="counts", wait_s=0.1, down_s=1.0),
        Kill(victim=Victim.DRIVER, moment=Moment.LOGGED, query="table", wait_s=0.0),
    )
    outcome = play(kills, tmp_path, per_second=PER_SECOND)
    assert outcome.is_ok, outcome
    assert outcome.acknowledged == outcome.sent > 0
    assert outcome.written["table"] == outcome.sent
    assert [kill.victim for kill in outcome.kills] == ["worker", "broker", "driver"]
    print(f"\n{outcome}")  # noqa: T201  # pytest shows it with -rP: the duplicates of this run


def test_a_source_that_goes_on_elsewhere_and_a_sink_that_does_not_wait_are_found(tmp_path: Path) -> None:
    kills = (Kill(victim=Victim.DRIVER, moment=Moment.COMMITTED, query="copy", wait_s=0.0),)
    outcome = play(
        kills,
        tmp_path,
        per_second=PER_SECOND,
        sources={
            "table": "mutants.spark_source_off_by_one:Late",
            "counts": "mutants.spark_source_off_by_one:Early",
        },
        sinks={"copy": "mutants.spark_sink_does_not_wait:Hasty"},
    )
    found = {finding.partition(":")[0] for finding in outcome.findings}
    assert found == {"table", "copy", "counts"}, outcome
    for name in ("table", "copy"):
        assert any(each.startswith(f"{name}: ") and " lost " in each for each in outcome.findings), outcome
    assert any(each.startswith("counts: ") and "never were right" in each for each in outcome.findings), (
        outcome
    )
