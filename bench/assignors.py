"""How long an assignment takes: the coordinator makes one on its loop, while every other group waits.

    python bench/assignors.py [--rounds 5] [--json]

Each figure is the best of several runs, in milliseconds: of a group that has nothing yet, of one in which
nothing changes, and of one that a member has just left; then of the first again, whose members and replicas
are in three racks, two replicas for each partition.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

from moldau.coordinator.group.assignors import ASSIGNORS, Subscriber
from moldau.model.ids import TopicId, Uuid

# Members, topics, partitions of each topic, and in how many different ways members subscribe.
SIZES = (
    (100, 10, 100, 1),
    (1_000, 10, 1_000, 1),
    (1_000, 1_000, 10, 1),
    (10_000, 100, 1_000, 1),
    (1_000, 10, 1_000, 3),
    (1_000, 1_000, 10, 3),
    (10_000, 100, 1_000, 3),
)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    asked = arguments.parse_args()
    figures = [
        {"assignor": name, "members": size[0], "partitions": size[1] * size[2], "topics": size[1]}
        | {"subscriptions": size[3]}
        | measure(name, *size, rounds=asked.rounds)
        for name in ASSIGNORS
        for size in SIZES
    ]
    if asked.json:
        print(json.dumps(figures, indent=2))
        return
    columns = list(figures[0])
    print("".join(f"{column:>16}" for column in columns))
    for row in figures:
        print("".join(f"{row[column]:>16}" for column in columns))


def measure(
    name: str, members: int, topics: int, partitions: int, subscriptions: int, *, rounds: int
) -> dict[str, float]:
    """Milliseconds of three assignments of one group."""
    assign = ASSIGNORS[name]
    ids = [TopicId(Uuid(number.to_bytes(16, "big"))) for number in range(topics)]
    counts = dict.fromkeys(ids, partitions)
    # With more than one, each leaves out every third topic or so.
    wanted = [
        tuple(each for place, each in enumerate(ids) if subscriptions == 1 or (place + kind) % subscriptions)
        for kind in range(subscriptions)
    ]
    fresh = [Subscriber(f"{number:06}", wanted[number % subscriptions]) for number in range(members)]
    assigned = assign(fresh, counts)
    settled = [Subscriber(each.member_id, each.topics, assigned[each.member_id]) for each in fresh]

    def best(group: Sequence[Subscriber]) -> float:
        return best_ms(lambda: assign(group, counts), rounds)

    pairs = [tuple(pair) for pair in combinations("abc", 2)]
    places = {each: [pairs[number * number % 3] for number in range(partitions)] for each in ids}
    racked = [replace(each, rack="abc"[number % 3]) for number, each in enumerate(fresh)]
    return {
        "fresh_ms": best(fresh),
        "same_ms": best(settled),
        "one_left_ms": best(settled[1:]),
        "racks_ms": best_ms(lambda: assign(racked, counts, places), rounds),
    }


def best_ms(call: Callable[[], object], rounds: int) -> float:
    """The fastest of so many calls."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return round(min(taken) * 1000, 1)


if __name__ == "__main__":
    main()
