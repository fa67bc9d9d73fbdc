"""Windows of event time, and what becomes of events that are late."""

from typing import TYPE_CHECKING

from spark.examples.conftest import Examples, Topics

if TYPE_CHECKING:
    pass


def click(page: str, at: str) -> dict[str, str]:
    return {"page": page, "at": f"2030-01-01T{at}Z"}


def test_a_minute_is_counted_once_it_is_over_and_late_clicks_until_then(
    examples: Examples, topics: Topics
) -> None:
    topics.create("clicks", "clicks-per-minute")
    with examples.running("tumbling_windows") as query:

        def send(*clicks: dict[str, str]) -> list[tuple[str, str, int]]:
            topics.write("clicks", *clicks)
            query.processAllAvailable()
            rows = topics.read_values("clicks-per-minute")
            return sorted((row["minute"][11:16], row["page"], row["count"]) for row in rows)

        assert (
            send(click("/home", "12:00:10"), click("/cart", "12:00:59.999"), click("/home", "12:01:00")) == []
        )
        # Late, and in time: the watermark is at 12:00:59, so the first minute is still open.
        assert send(click("/home", "12:02:59")) == []
        assert send(click("/home", "12:00:20")) == []
        # The watermark comes to 12:01, where that minute ends.
        first = [("12:00", "/cart", 1), ("12:00", "/home", 2)]
        assert send(click("/home", "12:03:00")) == first
        # Too late; and the second minute is open.
        assert send(click("/home", "12:00:30"), click("/home", "12:01:20")) == first
        dropped = sum(
            operator.numRowsDroppedByWatermark
            for each in query.recentProgress
            for operator in each.stateOperators
        )
        assert dropped == 1
        assert send(click("/home", "12:10:00")) == [
            *first,
            ("12:01", "/home", 2),
            ("12:02", "/home", 1),
            ("12:03", "/home", 1),
        ]


def test_a_figure_is_corrected_until_its_window_closes(examples: Examples, topics: Topics) -> None:
    topics.create("measurements")
    topics.create("speeds", cleanup_policy="compact")
    with examples.running("hopping_windows") as query:
        written = 0

        def send(speed: float, at: str) -> dict[str, tuple[float, int]]:
            nonlocal written
            topics.write("measurements", {"road": "A1", "speed": speed, "at": f"2030-01-01T{at}Z"})
            query.processAllAvailable()
            rows = topics.read_pairs("speeds")[written:]
            written += len(rows)
            found = {
                f"{key['start'][11:16]}-{key['end'][11:16]}": (row["speed"], row["measurements"])
                for key, row in rows
                if key["road"] == "A1"
            }
            assert len(found) == len(rows)
            return found

        assert send(100, "12:06:00") == {"12:00-12:10": (100, 1), "12:05-12:15": (100, 1)}
        # Late, and in time: the mean of a window that has been written is corrected.
        assert send(85, "12:04:00") == {"11:55-12:05": (85, 1), "12:00-12:10": (92.5, 2)}
        assert send(50, "12:20:00") == {"12:15-12:25": (50, 1), "12:20-12:30": (50, 1)}
        # The watermark is at 12:15, so one of the windows of this is closed, and one is not.
        assert send(70, "12:14:59") == {"12:10-12:20": (70, 1)}
        assert send(70, "12:09:59") == {}


def test_a_late_view_joins_visits_and_a_visit_that_is_over_stays(examples: Examples, topics: Topics) -> None:
    topics.create("views", "visits")

    def view(visitor: str, page: str, at: str) -> dict[str, str]:
        return {"visitor": visitor, "page": page, "at": f"2030-01-01T{at}Z"}

    with examples.running("session_windows") as query:

        def send(*views: dict[str, str]) -> list[tuple[str, str, str, int, list[str]]]:
            topics.write("views", *views)
            query.processAllAvailable()
            return sorted(
                (visitor, row["start"][11:19], row["end"][11:19], row["views"], row["pages"])
                for visitor, row in topics.read_pairs("visits")
            )

        two_visits = [
            view("ada", "/a", "12:00:00"),
            view("ada", "/b", "12:04:00"),
            view("ada", "/c", "12:12:00"),
        ]
        # Exactly five minutes are no pause yet.
        others = [view("cyd", "/a", "12:01:00"), view("cyd", "/a", "12:06:00")]
        others += [view("bob", "/a", "12:01:00"), view("bob", "/a", "12:06:00.001")]
        assert send(*two_visits, *others) == []
        # Less than five minutes after the one and before the other: they are one.
        assert send(view("ada", "/b", "12:08:30")) == []
        visits = [
            ("ada", "12:00:00", "12:17:00", 4, ["/a", "/b", "/c"]),
            ("bob", "12:01:00", "12:06:00", 1, ["/a"]),
            ("bob", "12:06:00", "12:11:00", 1, ["/a"]),
            ("cyd", "12:01:00", "12:11:00", 2, ["/a"]),
        ]
        assert send(view("zoe", "/a", "12:27:00")) == visits
        # Too late for anything: bob's visits stay two.
        assert send(view("bob", "/b", "12:05:00"), view("zoe", "/a", "14:00:00")) == [
            *visits,
            ("zoe", "12:27:00", "12:32:00", 1, ["/a"]),
        ]
