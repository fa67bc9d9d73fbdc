"""Where records go: the same partition that the Java client chooses, key by key."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.partitioners import (
    RoundRobin,
    Sticky,
    by_crc32,
    by_crc32_or_anywhere,
    by_fnv1a,
    by_murmur2,
    by_murmur2_or_anywhere,
    fnv1a,
    partitioner_named,
)
from moldau.model.settings.setting import InvalidSetting
from moldau.wire.records.kernel import murmur2

# Prints, for each key in hex, Kafka's hash and the partition that the Java producer chooses of 1, 7 and 64.
JAVA = """
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class Program {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (lines.hasNextLine()) {
            byte[] key = HexFormat.of().parseHex(lines.nextLine());
            out.append(Utils.murmur2(key));
            for (int count : new int[] {1, 7, 64})
                out.append(' ').append(BuiltInPartitioner.partitionForKey(key, count));
            out.append('\\n');
        }
        System.out.print(out);
    }
}
"""


def test_keys_go_where_the_java_client_sends_them(run_java: Callable[..., str]) -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(length) for length in range(70) for _ in range(40)]
    keys += ["Łódź".encode(), b"\x00", b"\xff" * 1000, *(b"order-%d" % number for number in range(2_000))]
    answers = run_java(JAVA, stdin="".join(f"{key.hex()}\n" for key in keys)).splitlines()
    assert len(answers) == len(keys)
    for key, answer in zip(keys, answers, strict=True):
        hashed, *partitions = map(int, answer.split())
        assert murmur2(key) == hashed % 2**32, key
        assert [by_murmur2_or_anywhere("t", key, count) for count in (1, 7, 64)] == partitions, key


def test_fnv1a_is_the_absolute_value_of_a_signed_number() -> None:
    assert fnv1a(b"") == 2**32 - 0x811C9DC5
    assert fnv1a(b"a") == 2**32 - 0xE40C292C
    assert by_fnv1a("t", b"foobar", 100) == (2**32 - 0xBF9CF968) % 100


def test_records_without_a_key_may_go_anywhere_or_where_an_empty_key_goes() -> None:
    assert by_murmur2_or_anywhere("t", None, 8) is None
    assert by_murmur2_or_anywhere("t", b"", 8) == by_murmur2("t", None, 8) == by_murmur2("t", b"", 8)
    assert by_crc32_or_anywhere("t", None, 8) is by_crc32_or_anywhere("t", b"", 8) is None
    assert by_crc32("t", None, 8) == 0


@given(st.binary(max_size=64), st.integers(min_value=1, max_value=10_000))
def test_a_key_always_goes_to_the_same_partition_that_exists(key: bytes, count: int) -> None:
    for name in ("default", "murmur2", "consistent", "fnv1a"):
        chosen = partitioner_named(name)("t", key, count)
        assert chosen == partitioner_named(name)("t", key, count)
        assert chosen is not None and 0 <= chosen < count


def test_round_robin_takes_turns_in_each_topic_by_itself() -> None:
    turns = RoundRobin()
    assert [turns("a", b"key", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert turns("b", None, 3) == 0
    # A topic that lost or gained partitions goes on within those it has.
    assert [turns("a", None, 2) for _ in range(3)] == [1, 0, 1]


def test_sticky_stays_until_a_batch_is_full_and_then_moves_to_another_partition() -> None:
    sticky = Sticky(switch_bytes=100, below=lambda bound: bound - 1)
    chosen = [sticky.choose("t", (0, 1, 2), 40) for _ in range(7)]
    assert chosen == [2, 2, 2, 1, 1, 1, 2]


def test_sticky_leaves_a_partition_that_has_lost_its_leader() -> None:
    sticky = Sticky(switch_bytes=100, below=lambda bound: 0)
    assert sticky.choose("t", (0, 1), 10) == 0
    assert sticky.choose("t", (1,), 10) == 1


def test_an_unknown_partitioner_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidSetting, match=r"no partitioner 'murmur3'; there are default, murmur2, "):
        partitioner_named("murmur3")
