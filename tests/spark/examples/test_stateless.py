"""What looks at one record at a time: map, filter, branch, merge, dead letters."""

import json
from typing import TYPE_CHECKING

from spark.examples.conftest import Examples, Topics, Value

if TYPE_CHECKING:
    pass


def test_readings_are_filtered_and_mapped(examples: Examples, topics: Topics) -> None:
    topics.create("readings", "fahrenheit")
    with examples.running("map_filter") as query:
        topics.write(
            "readings",
            {"sensor": "attic", "celsius": 21.5},
            {"sensor": "oven", "celsius": 180},
            {"sensor": "attic"},
            "no JSON",
            None,
            {"sensor": "lake", "celsius": -90},
            key="old key",
        )
        query.processAllAvailable()
    assert topics.read_pairs("fahrenheit") == [
        ("attic", {"sensor": "attic", "fahrenheit": 70.7}),
        ("lake", {"sensor": "lake", "fahrenheit": -130.0}),
    ]


def test_two_streams_become_one_and_two_branches(examples: Examples, topics: Topics) -> None:
    topics.create("orders-web", "orders-app", "orders-large", "orders-other")
    with examples.running("branch_merge") as query:
        topics.write("orders-web", {"amount": 1500, "note": "kept"}, {"amount": 999.99}, key="ada")
        topics.write("orders-app", {"amount": 1000}, "no JSON", key="bob")
        query.processAllAvailable()

    def rows(topic: str) -> set[tuple[object, ...]]:
        records = topics.read(topic)
        found: set[tuple[object, ...]] = {
            (record.key, record.value, tuple(record.headers)) for record in records
        }
        assert len(found) == len(records)
        return found

    web, app = (("origin", b"web"),), (("origin", b"app"),)
    assert rows("orders-large") == {
        (b"ada", b'{"amount": 1500, "note": "kept"}', web),
        (b"bob", b'{"amount": 1000}', app),
    }
    assert rows("orders-other") == {(b"ada", b'{"amount": 999.99}', web), (b"bob", b"no JSON", app)}


def test_what_cannot_be_read_is_a_dead_letter_that_says_why(examples: Examples, topics: Topics) -> None:
    topics.create("payments", "payments-checked", "payments-dead")
    good: list[Value] = [{"id": "p1", "amount": 12.5}, {"id": "p2", "amount": "0.01", "more": [1]}]
    bad = {
        '{"id": "p3"': "not the JSON of a payment",
        '{"id": "p4", "amount": "much"}': "not the JSON of a payment",
        '{"amount": 1}': "no id",
        '{"id": "p5"}': "no amount",
    }
    with examples.running("dead_letters") as query:
        topics.write("payments", good[0], *bad, good[1], None, key="k")
        query.processAllAvailable()
    checked = topics.read("payments-checked")
    assert [json.loads(record.value or b"") for record in checked] == good
    assert all(not record.headers for record in checked)
    dead = [(record.key, record.value, dict(record.headers)) for record in topics.read("payments-dead")]
    place = {"topic": b"payments", "partition": b"0"}
    assert dead == [
        (b"k", value.encode(), {"error": why.encode(), **place, "offset": str(offset).encode()})
        for offset, (value, why) in enumerate(bad.items(), start=1)
    ] + [(b"k", None, {"error": b"no value", **place, "offset": b"6"})]
