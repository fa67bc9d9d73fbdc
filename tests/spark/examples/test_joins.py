"""Streams that meet streams, streams that meet tables."""

from typing import TYPE_CHECKING, Any

from spark.examples.conftest import Examples, Topics

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_orders_meet_payments_of_half_an_hour_and_no_others(examples: Examples, topics: Topics) -> None:
    topics.create("orders", "payments", "orders-paid")

    def order(name: str, at: str) -> dict[str, Any]:
        return {"id": name, "amount": 10, "at": f"2030-01-01T{at}Z"}

    def payment(order_id: str, at: str) -> dict[str, Any]:
        return {"order_id": order_id, "method": "card", "at": f"2030-01-01T{at}Z"}

    with examples.running("stream_join") as query:

        def results() -> list[tuple[str, str | None]]:
            query.processAllAvailable()
            rows = topics.read_pairs("orders-paid")
            return sorted((order_id, row.get("paid_at", "none")[11:]) for order_id, row in rows)

        topics.write(
            "payments",
            payment("on time", "12:30:00"),
            payment("too late", "12:30:00.001"),
            payment("too early", "11:59:59.999"),
            payment("twice", "12:00:00"),
            payment("nobody's", "12:00:00"),
        )
        assert results() == []
        topics.write(
            "orders", *(order(name, "12:00:00") for name in ("on time", "too late", "too early", "twice"))
        )
        met = [("on time", "12:30:00.000Z"), ("twice", "12:00:00.000Z")]
        assert results() == met
        topics.write("payments", payment("twice", "12:05:00"))
        met = sorted([*met, ("twice", "12:05:00.000Z")])
        assert results() == met
        # Only when both sides are past the time is it certain that an order is not paid.
        topics.write("orders", order("later", "14:00:00"))
        assert results() == met
        topics.write("payments", payment("later", "14:00:00"))
        assert results() == sorted([*met, ("later", "14:00:00.000Z"), ("too early", ""), ("too late", "")])


def test_an_order_gets_what_the_table_says_when_it_is_processed(examples: Examples, topics: Topics) -> None:
    topics.create("orders", "orders-enriched")
    topics.create("customers", cleanup_policy="compact")
    with examples.running("stream_table_join") as query:

        def send(name: str, customer: str) -> Any:
            topics.write("orders", {"id": name, "customer": customer, "amount": 10})
            query.processAllAvailable()
            rows = dict(topics.read_pairs("orders-enriched"))
            return rows[name].get("name"), rows[name].get("city")

        topics.write("customers", {"name": "Ada", "city": "London"}, key="ada")
        topics.write("customers", {"name": "Bob", "city": "Paris"}, key="bob")
        assert send("o1", "ada") == ("Ada", "London")
        topics.write("customers", {"name": "Ada", "city": "Prague"}, key="ada")
        topics.write("customers", None, key="bob")
        assert send("o2", "ada") == ("Ada", "Prague")
        assert send("o3", "bob") == (None, None)
    assert [key for key, _ in topics.read_pairs("orders-enriched")] == ["o1", "o2", "o3"]


def test_a_compacted_topic_is_a_table(
    spark: "SparkSession", examples: Examples, topics: Topics, capsys: "pytest.CaptureFixture[str]"
) -> None:
    topics.create("customers", partitions=2, cleanup_policy="compact")
    topics.write_pairs(
        "customers",
        ("ada", {"name": "Ada", "city": "London"}),
        ("bob", {"name": "Bob", "city": "Paris"}),
        ("cyd", {"name": "Cyd", "city": "London"}),
        ("ada", {"name": "Ada", "city": "Prague"}),
        ("bob", None),
        ("cyd", None),
        ("cyd", {"name": "Cyd", "city": "Prague"}),
        ("dan", {"name": "Dan", "city": "Rome"}),
    )
    examples.run("table")
    assert "|Prague|        2|\n|  Rome|        1|\n+--" in capsys.readouterr().out
    assert [tuple(row) for row in spark.sql("SELECT * FROM customers ORDER BY id").collect()] == [
        ("ada", "Ada", "Prague"),
        ("cyd", "Cyd", "Prague"),
        ("dan", "Dan", "Rome"),
    ]
