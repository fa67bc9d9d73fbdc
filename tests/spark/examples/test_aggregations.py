"""What is counted and added up for ever, as a table that is a topic."""

from typing import TYPE_CHECKING

from spark.examples.conftest import Examples, Topics

if TYPE_CHECKING:
    pass


def test_words_are_counted_and_only_counts_that_change_are_written(
    examples: Examples, topics: Topics
) -> None:
    topics.create("lines")
    topics.create("word-counts", cleanup_policy="compact")
    with examples.running("word_count") as query:
        topics.write("lines", "The cat, the dog -- and THE end.")
        query.processAllAvailable()
        first = topics.read_pairs("word-counts")
        assert sorted(first) == [("and", 1), ("cat", 1), ("dog", 1), ("end", 1), ("the", 3)]
        topics.write("lines", "the dog")
        query.processAllAvailable()
    assert sorted(topics.read_pairs("word-counts")[len(first) :]) == [("dog", 2), ("the", 4)]


def test_every_customer_has_totals_that_are_kept_up_to_date(examples: Examples, topics: Topics) -> None:
    topics.create("orders", partitions=2)
    topics.create("totals", cleanup_policy="compact")
    with examples.running("aggregate") as query:
        topics.write_pairs(
            "orders",
            ("1", {"customer": "ada", "amount": 0.1}),
            ("2", {"customer": "bob", "amount": 5}),
            ("3", {"customer": "ada", "amount": 0.2}),
            ("4", {"amount": 7}),
            ("5", "no JSON"),
        )
        query.processAllAvailable()
        first = topics.read_pairs("totals")
        assert dict(first) == {
            "ada": {"orders": 2, "amount": 0.3, "largest": 0.2},
            "bob": {"orders": 1, "amount": 5.0, "largest": 5.0},
        }
        topics.write("orders", {"customer": "bob", "amount": 2.5})
        query.processAllAvailable()
    assert topics.read_pairs("totals")[len(first) :] == [
        ("bob", {"orders": 2, "amount": 7.5, "largest": 5.0})
    ]
