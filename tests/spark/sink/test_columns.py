"""Which columns of a query are written, and what is said of those that cannot be."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from moldau.spark.sink.columns import Columns, columns_of
from moldau.spark.sink.errors import BadColumns

TEXT, BYTES = StringType(), BinaryType()


def headers(key: DataType = TEXT, value: DataType = BYTES) -> ArrayType:
    return ArrayType(StructType([StructField("key", key), StructField("value", value)]))


def columns(*, to: str | None = None, with_timestamp: bool = False, **types: DataType) -> Columns:
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    return columns_of(schema, topic=to, with_timestamp=with_timestamp)


def test_a_value_and_a_place_to_go_is_all_that_is_needed() -> None:
    assert columns(value=TEXT, to="orders") == Columns(
        topic="orders", has_key=False, has_headers=False, has_partition=False, has_timestamp=False
    )
    assert columns(value=BYTES, topic=TEXT).topic is None


def test_all_columns_of_sparks_connector_are_taken_and_others_left_alone() -> None:
    found = columns(
        key=BYTES, value=BYTES, topic=TEXT, partition=IntegerType(), headers=headers(), more=LongType()
    )
    assert (found.has_key, found.has_partition, found.has_headers) == (True, True, True)


def test_the_option_topic_goes_before_the_column_whatever_that_is() -> None:
    assert columns(value=TEXT, topic=LongType(), to="orders").topic == "orders"


def test_a_timestamp_is_written_only_if_asked_for() -> None:
    assert not columns(value=TEXT, timestamp=TimestampType(), to="t").has_timestamp
    assert columns(value=TEXT, timestamp=TimestampType(), to="t", with_timestamp=True).has_timestamp
    # Whatever has that name is no concern of the sink's as long as nobody asks for it.
    assert not columns(value=TEXT, timestamp=LongType(), to="t").has_timestamp


@pytest.mark.parametrize("kind", [VarcharType(10), NullType()])
def test_every_kind_of_string_is_a_string_and_void_is_null(kind: DataType) -> None:
    assert columns(key=kind, value=kind, to="t").has_key


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"key": TEXT}, "There is no column 'value', which every record needs. The columns are key."),
        ({"Value": TEXT}, "There is no column 'value', which every record needs. Rename 'Value' to 'value'."),
        (
            {"value": IntegerType()},
            "Column 'value' is int, and must be string or binary: cast it before writing.",
        ),
        ({"value": TEXT, "key": LongType()}, "Column 'key' is bigint, and must be string or binary"),
        ({"value": TEXT, "partition": LongType()}, "Column 'partition' is bigint, and must be int"),
        (
            {"value": TEXT, "headers": ArrayType(TEXT)},
            "Column 'headers' is array<string>, and must be array<st",
        ),
        ({"value": TEXT, "headers": headers(value=TEXT)}, "must be array<struct<key:string,value:binary>>"),
    ],
)
def test_what_cannot_be_written_is_named_with_what_to_do(types: dict[str, DataType], text: str) -> None:
    with pytest.raises(BadColumns) as error:
        columns(to="orders", **types)  # type: ignore[arg-type]  # all of them are types
    assert text in str(error.value)


def test_rows_that_may_go_nowhere_are_refused() -> None:
    with pytest.raises(BadColumns, match="neither an option 'topic' nor a column 'topic'"):
        columns(value=TEXT)
    with pytest.raises(BadColumns, match="Column 'topic' is void, and must be string"):
        columns(value=TEXT, topic=NullType())


def test_a_timestamp_that_is_asked_for_must_be_there_and_be_one() -> None:
    with pytest.raises(BadColumns, match="includeTimestamp asks for a column 'timestamp'"):
        columns(value=TEXT, to="t", with_timestamp=True)
    with pytest.raises(
        BadColumns, match="Column 'timestamp' is bigint, and must be timestamp or timestamp_ntz"
    ):
        columns(value=TEXT, timestamp=LongType(), to="t", with_timestamp=True)
