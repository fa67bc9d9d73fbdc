"""Records for tests, and strategies that make them."""

from hypothesis import strategies as st

from moldau.wire.records.record import Record

INT32_MAX = 2**31 - 1


def record(offset: int, timestamp: int, key: bytes | None = b"key", value: bytes | None = b"value") -> Record:
    return Record(offset, timestamp, key, value)


def records_of(count: int, *, base_offset: int = 0, timestamp: int = 1_700_000_000_000) -> list[Record]:
    """Records that compress, each a little different."""
    return [
        Record(
            base_offset + index,
            timestamp + index,
            b"key-%d" % index if index % 5 else None,
            b"value %d " % index * 3 if index % 7 else None,
            (("trace", b"%d" % index), ("näme", None)) if index % 3 == 0 else (),
        )
        for index in range(count)
    ]


def batches_of_records(base_offset: int = 100, size_max: int = 40) -> st.SearchStrategy[list[Record]]:
    """Records with growing offsets, as compaction may leave them."""
    contents = st.tuples(
        st.integers(1, 3),
        st.integers(-(2**63), 2**63 - 1) | st.integers(1_699_999_999_000, 1_700_000_001_000),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
        st.integers(-128, 127),
    )

    def with_offsets(rows: list[tuple[int, int, bytes | None, bytes | None, tuple, int]]) -> list[Record]:  # type: ignore[type-arg]
        offset, records = base_offset - 1, []
        for gap, timestamp, key, value, headers, attributes in rows:
            offset += gap
            records.append(Record(offset, timestamp, key, value, headers, attributes))
        return records

    return st.lists(contents, max_size=size_max).map(with_offsets)
