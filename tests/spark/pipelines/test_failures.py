"""What is said of a pipeline that went wrong: the reason, and the line of its file; each of it for real."""

import importlib.util
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from moldau.spark.pipelines.failures import explain, full_text, shorten
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each function fails in the line that ends with "# here".
MISTAKES = """\
from pyspark.sql import functions as F


def start(rows, folder):
    return rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint").start()


def a_column_that_is_not_there(spark, folder, servers):
    return spark.range(3).select("nothing")  # here


def a_function_for_rows(spark, folder, servers):
    @F.udf("long")
    def broken(value):
        return 1 // (value - value)  # here

    return start(spark.readStream.format("rate").load().select(broken("value")), folder)


def a_division(spark, folder, servers):
    rows = spark.readStream.format("rate").load()
    return start(rows.select(F.col("value") / (F.col("value") - F.col("value"))), folder)  # here


def a_function_for_batches(spark, folder, servers):
    def write(rows, number):
        raise ValueError("no such place")  # here

    rows = spark.readStream.format("rate").load()
    return rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint").start()


def plain_python(spark, folder, servers):
    return {}["missing"]  # here


def an_option(spark, folder, servers):
    return spark.readStream.format("moldau").option("subscrib", "x").load()  # here


def a_topic(spark, folder, servers):
    options = {"kafka.bootstrap.servers": servers, "subscribe": "not-there"}
    rows = spark.readStream.format("moldau").options(**options).load()
    return start(rows, folder)
"""

SAID = {
    "a_column_that_is_not_there": "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function",
    "a_function_for_rows": "ZeroDivisionError: integer division or modulo by zero",
    "a_division": "[DIVIDE_BY_ZERO] Division by zero.",
    "a_function_for_batches": "ValueError: no such place",
    "plain_python": "KeyError: 'missing'",
    "an_option": "There is no option subscrib. Did you mean subscribe?",
    "a_topic": "not-there",
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("pipeline") / "mistakes.py"
    path.write_text(MISTAKES)
    spec = importlib.util.spec_from_file_location("mistakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(run: Callable[..., object], *arguments: object) -> BaseException:
    """What it raises, or what the query dies of that it starts."""
    from pyspark.errors import PySparkException

    try:
        query = run(*arguments)
    except Exception as error:  # noqa: BLE001  # whatever it is, that is the question
        return error
    with pytest.raises(PySparkException) as dead:
        query.awaitTermination(120)  # type: ignore[attr-defined]
    return dead.value


@pytest.mark.parametrize("mistake", SAID)
def test_a_mistake_is_said_in_a_line_with_its_place(
    mistake: str, pipeline: ModuleType, spark: "SparkSession", broker: Cluster, tmp_path: Path
) -> None:
    path = Path(pipeline.__file__ or "")
    error = error_of(getattr(pipeline, mistake), spark, tmp_path, broker.bootstrap_servers)
    failure = explain(error, path.parent)
    assert SAID[mistake] in failure.reason
    assert "\n" not in str(failure)
    assert "SQLSTATE" not in str(failure)
    assert "py4j" not in str(failure)
    begin = MISTAKES[: MISTAKES.index(f"def {mistake}(")].count("\n") + 1
    places = [number for number, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# here")]
    line = next((number for number in places if number > begin), None)
    if line is None:
        # It shows in a process of Spark's, which knows nothing of the pipeline.
        assert failure.path is None
    else:
        assert (failure.path, failure.line) == (path, line)
        assert str(failure).startswith(f"mistakes.py, line {line}: ")


def test_a_mistake_in_a_library_is_placed_where_the_pipeline_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "clicks.py"
    path.write_text("def pipeline(spark):\n    spark.rmtree('/no/such/folder')\n")
    names: dict[str, Callable[..., None]] = {}
    exec(compile(path.read_text(), path, "exec"), names)
    failure = explain(error_of(names["pipeline"], shutil), tmp_path)
    assert (failure.path, failure.line) == (path, 2)
    assert failure.reason.startswith("FileNotFoundError: ")
    assert str(explain(KeyError("a"), tmp_path, query="counts")) == "query 'counts': KeyError: 'a'"


def test_the_whole_of_it_is_for_the_log() -> None:
    with pytest.raises(KeyError) as caught:
        raise KeyError("a")
    text = full_text(caught.value)
    assert text == "".join(traceback.format_exception(caught.value))
    assert text.startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("[X] a\n  b. SQLSTATE: 42703", "[X] a b."),
        ("[STREAM_FAILED] Query q [id = 1, runId = 2] terminated with exception: boom", "boom"),
        ("(org.apache.spark.SparkRuntimeException) [Y] c", "[Y] c"),
        ("x" * 700, "x" * 600 + "…"),
    ],
)
def test_a_reason_is_a_line_without_what_only_spark_needs(text: str, short: str) -> None:
    assert shorten(text) == short
