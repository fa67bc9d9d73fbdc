"""What is remembered between batches: ids that have been seen, sensors that have gone silent."""

from typing import TYPE_CHECKING

from spark.examples.conftest import Examples, Topics

if TYPE_CHECKING:
    pass


def test_an_event_goes_on_once_as_long_as_it_is_remembered(examples: Examples, topics: Topics) -> None:
    topics.create("events", "events-once")

    def event(name: str, at: str, attempt: int) -> dict[str, object]:
        return {"id": name, "at": f"2030-01-01T{at}Z", "attempt": attempt}

    with examples.running("deduplicate") as query:

        def send(*events: dict[str, object]) -> set[tuple[str, int]]:
            seen = len(topics.read("events-once"))
            topics.write("events", *events, key="k")
            query.processAllAvailable()
            rows = topics.read_values("events-once")[seen:]
            found = {(row["id"], row["attempt"]) for row in rows}
            assert len(found) == len(rows)
            return found

        events = event("x", "12:00:00", 1), event("y", "12:00:01", 1), event("x", "12:00:00", 2)
        assert send(*events) in ({("x", 1), ("y", 1)}, {("x", 2), ("y", 1)})
        assert send(event("x", "12:59:00", 3), event("z", "12:00:02", 1)) == {("z", 1)}
        # The watermark comes to 13:00:00.500, an hour after x, and not after y.
        assert send(event("w", "14:00:00.500", 1)) == {("w", 1)}
        assert send(event("x", "14:00:00", 4), event("y", "14:00:00", 2)) == {("x", 4)}


def test_a_sensor_is_reported_when_it_falls_silent_and_when_it_is_back(
    examples: Examples, topics: Topics
) -> None:
    topics.create("reports", "notices")

    def report(sensor: str, at: str) -> dict[str, str]:
        return {"sensor": sensor, "at": f"2030-01-01T{at}Z"}

    with examples.running("custom_state") as query:

        def send(*reports: dict[str, str]) -> list[tuple[str, str, str]]:
            topics.write("reports", *reports)
            query.processAllAvailable()
            rows = topics.read_values("notices")
            return [(row["sensor"], row["state"], row["since"][11:19]) for row in rows]

        assert (
            send(report("attic", "12:00:00"), report("lake", "12:00:00"), report("attic", "12:08:00")) == []
        )
        # The watermark comes to 12:11, ten minutes after the lake's last report and not after the attic's.
        silent = [("lake", "silent", "12:00:00")]
        assert send(report("attic", "12:12:00")) == silent
        # What it sends now is news, and sets both timers going again.
        back = [*silent, ("lake", "back", "12:20:00")]
        assert send(report("lake", "12:20:00")) == back
        assert send(report("lake", "12:26:00")) == [*back, ("attic", "silent", "12:12:00")]
