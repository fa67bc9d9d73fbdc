"""What is looked at before a pipeline runs, on a real broker and without Spark."""

import pytest

from moldau.spark.pipelines.checks import Cause, CheckFailed, Finding, Level, check_access, first_problem
from moldau.spark.pipelines.hooks import FORMAT, Access
from moldau.testing import Cluster

WELL = Finding("cluster", Level.OK, "It answers.")
WARNING = Finding("topics", Level.WARNING, "There is no topic.")
PROBLEM = Finding("Java", Level.PROBLEM, "There is none.")


def writing(broker: Cluster, **options: str) -> list[Finding]:
    options = {name.replace("_", "."): value for name, value in options.items()}
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return [*check_access(Access("write", FORMAT, {**servers, **options}, is_stream=True))]


def test_a_topic_to_write_to_may_be_missing_where_it_can_be_created(broker: Cluster) -> None:
    there = broker.topic()
    assert [finding.level for finding in writing(broker, topic=there)] == [Level.OK, Level.OK]
    (_, finding) = writing(broker, topic=there + "s")
    assert (finding.level, finding.fix) == (
        Level.WARNING,
        f"Did you mean '{there}'? 'moldau topic create {there}s' makes it.",
    )
    (_, finding) = writing(broker, topic=there + "s", kafka_allow_auto_create_topics="false")
    assert (finding.level, finding.cause) == (Level.PROBLEM, Cause.NOT_FOUND)
    assert finding.detail == f"There is no topic '{there}s' to write to."


def test_the_first_problem_ends_it_and_warnings_are_told() -> None:
    told: list[Finding] = []
    first_problem([WELL, WARNING, WELL], warned=told.append)
    assert told == [WARNING]
    with pytest.raises(CheckFailed, match="There is none"):
        first_problem([PROBLEM, WARNING], warned=told.append)
    assert told == [WARNING]
