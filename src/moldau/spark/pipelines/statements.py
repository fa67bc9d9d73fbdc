"""SQL while a pipeline is only validated: statements that may write are looked at, and not run.

Spark runs a statement as soon as `spark.sql` is given it, and a query only when somebody wants its rows. So
the text is parsed with Spark's own parser, and what the tree consists of decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_MARKS: Final = (f"{_PLANS}Command", f"{_PLANS}ParsedStatement")
# These are run to find out what comes of them.
_RUN_WHEN_ANALYSED: Final = frozenset(("Call", "UnresolvedExecuteImmediate", "CompoundBody"))
# What is a statement, or runs one, without being marked as such.
_UNMARKED: Final = frozenset((*_RUN_WHEN_ANALYSED, "InsertIntoDir"))

# Statements with which the session alone becomes another.
_OF_THE_SESSION: Final = frozenset(
    (
        *("SetCommand", "ResetCommand", "SetCatalogAndNamespace", "SetNamespaceCommand", "SetCatalogCommand"),
        *("CreateTempViewUsing", "CreateViewCommand", "CreateFunctionCommand", "CreateSQLFunctionCommand"),
        *("DropFunctionCommand", "CreateVariable", "SetVariable", "DropVariable"),
        *("CacheTable", "CacheTableAsSelect", "UncacheTable", "ClearCacheCommand", "RefreshTable"),
        *("RefreshResource", "AddJarsCommand", "AddFilesCommand", "AddArchivesCommand"),
        *("DescribeQueryCommand", "DescribeRelation", "DescribeColumn", "DescribeNamespace"),
        *("DescribeFunction", "ShowCreateTable"),
        *("ShowTables", "ShowViews", "ShowColumns", "ShowNamespaces", "ShowFunctions", "ShowPartitions"),
        *("ShowTableProperties", "ShowCatalogsCommand", "ShowCurrentNamespaceCommand"),
        *("ListJarsCommand", "ListFilesCommand", "ListArchivesCommand"),
    )
)
# Those that write into a catalog only, which is in memory here unless the pipeline brought its own.
_OF_THE_CATALOG: Final = frozenset(("CreateTable", "CreateTableLike", "CreateView"))
_CATALOG_SETTINGS: Final = "spark.sql.catalog."


def may_write(spark: SparkSession, text: str, *, has_arguments: bool, own_folder: Path) -> bool:
    """Whether a text for `spark.sql` may write anything outside of the session and of `own_folder`."""
    from pyspark.errors import ParseException

    try:
        found = set(_statements(_parsed(spark, text)))
    except ParseException:
        # Arguments may stand where only a literal can be read. Without them Spark says what is wrong.
        return has_arguments
    return not found <= (
        _OF_THE_SESSION | _OF_THE_CATALOG if _is_catalog_own(spark, own_folder) else _OF_THE_SESSION
    )


def check(spark: SparkSession, text: str) -> None:
    """Raise what Spark finds wrong with a statement, such as a missing column, without running it."""
    plan = _parsed(spark, text)
    if not _RUN_WHEN_ANALYSED.intersection(_statements(plan)):
        assert spark._jvm is not None, "it has a Java process"
        skipped = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        spark._jsparkSession.sessionState().executePlan(plan, skipped).assertAnalyzed()


def _parsed(spark: SparkSession, text: str) -> JavaObject:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def _statements(plan: JavaObject) -> Iterator[str]:
    """The statements in a tree: one as a rule, at its root or below WITH; none if it is a query."""
    marks = [plan.getClass().forName(name) for name in _MARKS]
    for node in _nodes(plan):
        # Objects of Scala's have a dollar at the end.
        name = str(node.getClass().getSimpleName()).rstrip("$")
        if name in _UNMARKED or any(mark.isInstance(node) for mark in marks):
            yield name


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    yield plan
    children = plan.children().iterator()
    while children.hasNext():
        yield from _nodes(children.next())


def _is_catalog_own(spark: SparkSession, own_folder: Path) -> bool:
    """Whether tables are forgotten with the session, and their directories with the folder."""
    warehouse = urlsplit(spark.conf.get("spark.sql.warehouse.dir"))
    return (
        spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
        and warehouse.scheme in ("", "file")
        and Path(unquote(warehouse.path)).is_relative_to(own_folder)
        and not any(name.startswith(_CATALOG_SETTINGS) for name in spark.conf.getAll)
    )
