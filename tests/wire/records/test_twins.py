"""The compiled kernel and its twin agree, whatever they are given."""

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.records.fuzz import compare, outcome

from moldau.wire.records import pure
from moldau.wire.records.kernel import NAME
from moldau.wire.records.record import Record


@pytest.mark.parametrize("seed", range(8))
def test_mutated_and_truncated_payloads_have_the_same_outcome(compiled: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        compare(compiled, pure, rng)


@pytest.mark.skipif(NAME == "pure", reason="the compiled kernel is not there")
@given(st.binary(max_size=80), st.integers(-2, 12))
def test_arbitrary_bytes_have_the_same_outcome(payload: bytes, count: int) -> None:
    from moldau.wire.records import _kernel

    for call in (
        lambda kernel: kernel.validate(payload, count),
        lambda kernel: kernel.plain_header(payload, 100, 5, 10, 10, True),
        lambda kernel: kernel.decode(payload, count, 3, 4),
        lambda kernel: kernel.to_columns([(payload, count, 3, 4, None)]),
    ):
        assert outcome(call, _kernel) == outcome(call, pure)


def test_a_large_payload_is_read_the_same_with_the_gil_given_away(compiled: ModuleType) -> None:
    rng = random.Random(7)
    records = [
        Record(index, rng.randrange(10**12), rng.randbytes(8), rng.randbytes(200)) for index in range(500)
    ]
    payload = pure.encode(records, 0, 0)
    assert len(payload) > 64 * 1024
    assert compiled.validate(payload, 500) == pure.validate(payload, 500)
    assert compiled.to_columns([(payload, 500, 0, 0, None)]) == pure.to_columns([(payload, 500, 0, 0, None)])
    assert compiled.retain(payload, 500, b"\1\0" * 250) == pure.retain(payload, 500, b"\1\0" * 250)
