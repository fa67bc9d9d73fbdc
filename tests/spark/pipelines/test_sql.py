"""What SQL pipelines may say beyond Spark's own statements."""

import pytest

from moldau.spark.pipelines.sql import InvalidSql, SinkFlow, SinkTable, read_sql, split

WHOLE = """\
-- From topic to topic; the ';' here ends nothing.
CREATE TEMPORARY VIEW clicks
USING moldau
OPTIONS (subscribe 'clicks', `startingOffsets` = "earliest", kafka.fetch.max.bytes 1000, x -1);

CREATE STREAMING TABLE pages AS
  SELECT from_json(CAST(value AS STRING), 'page STRING').page /* ; */ FROM STREAM clicks;

CREATE TABLE counts USING moldau OPTIONS (topic 'counts');
CREATE FLOW to_counts AS INSERT INTO counts BY NAME
  SELECT page AS value, ';' AS key FROM STREAM pages;
"""


def test_sources_sinks_and_flows_are_ours() -> None:
    found = read_sql(WHOLE)
    (source,) = found.sources
    assert (source.name, source.format, source.schema, source.is_stream, source.line) == (
        *("clicks", "moldau", None, True),
        2,
    )
    assert source.options == {
        "subscribe": "clicks",
        "startingOffsets": "earliest",
        "kafka.fetch.max.bytes": "1000",
        "x": "-1",
    }
    assert found.sinks == (SinkTable("counts", "moldau", {"topic": "counts"}, 9),)
    query = "SELECT page AS value, ';' AS key FROM STREAM pages"
    assert found.flows == (SinkFlow("to_counts", "counts", query, 10),)


def test_what_is_left_for_spark_stands_in_the_lines_where_it_stood() -> None:
    rest = read_sql(WHOLE).rest.splitlines()
    assert len(rest) == len(WHOLE.splitlines())
    assert [line for line in rest if line.strip() and not line.startswith("--")] == WHOLE.splitlines()[5:7]
    assert not read_sql(WHOLE).is_rest_empty
    assert read_sql("-- nothing\nCREATE TABLE t USING moldau;\n").is_rest_empty


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT 1;",
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM s;",
        "CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM s;",
        "CREATE FLOW f AS INSERT INTO a_streaming_table BY NAME SELECT * FROM STREAM s;",
        "CREATE TABLE t AS SELECT 1",
        "SET x = y;",
    ],
)
def test_sparks_own_statements_are_left_alone(statement: str) -> None:
    found = read_sql(statement)
    assert found.rest == statement
    assert (found.sources, found.sinks, found.flows) == ((), (), ())


@pytest.mark.parametrize(
    ("queries", "beside", "is_stream"),
    [
        ("SELECT * FROM STREAM v;", [], True),
        ("SELECT * FROM stream(`V`);", [], True),
        ("SELECT * FROM t JOIN v;", [], False),
        ("SELECT * FROM t;", [], True),
        ("SELECT * FROM t;", ["SELECT * FROM v;"], False),
        ("SELECT * FROM v;", ["SELECT * FROM STREAM v;"], True),
    ],
)
def test_a_source_is_a_stream_unless_it_is_read_as_a_table(
    queries: str, beside: list[str], is_stream: bool
) -> None:
    found = read_sql(
        f"CREATE OR REPLACE TEMP VIEW v (a INT, b DECIMAL(3, 2)) USING csv; {queries}", beside=beside
    )
    assert found.sources[0].is_stream is is_stream
    assert found.sources[0].schema == "a INT, b DECIMAL(3, 2)"


def test_a_flow_into_a_sink_that_python_defines_is_ours() -> None:
    flow = "CREATE FLOW f AS INSERT INTO Out BY NAME SELECT 1 AS value"
    assert read_sql(flow).flows == ()
    assert read_sql(flow, sinks=["out"]).flows == (SinkFlow("f", "Out", "SELECT 1 AS value", 1),)


def test_texts_mean_what_they_mean_in_spark() -> None:
    view = read_sql(r"""CREATE TEMP VIEW v USING f OPTIONS ('a' 'it''s', b "x\ty", c true)""")
    assert view.sources[0].options == {"a": "it's", "b": "x\ty", "c": "true"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 'a", "line 1: the quote ' is never closed"),
        (
            "\n\nCREATE TEMPORARY VIEW v USING moldau OPTIONS (a)",
            "line 3: option a needs a value in quotes, not",
        ),
        ("CREATE TEMPORARY VIEW v USING moldau OPTIONS a 'b'", "OPTIONS must be followed by '(', not 'a'"),
        (
            "CREATE TABLE t USING moldau OPTIONS (a 'b' c 'd')",
            "after option a a ',' or ')' is expected, not 'c'",
        ),
        ("CREATE TABLE t USING moldau AS SELECT 1", "line 1: the statement should end here, not 'AS'"),
        ("CREATE TEMP VIEW (a INT) USING moldau", "the name of a view is expected, not '('"),
        ("CREATE TEMP VIEW v (a INT USING moldau", "a closing parenthesis is missing"),
        ("CREATE TABLE t USING moldau; CREATE FLOW f AS INSERT INTO t BY NAME ;", "a query is expected"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidSql) as error:
        read_sql(text)
    assert reason in str(error.value)


def test_statements_end_where_semicolons_stand_outside_of_texts_and_comments() -> None:
    text = "a; b ';' c; /* d; */ e -- f;\n; `;` g;;"
    assert [[token.text for token in each] for each in split(text)] == [
        ["a", ";"],
        ["b", "';'", "c", ";"],
        ["e", ";"],
        ["`;`", "g", ";"],
    ]
