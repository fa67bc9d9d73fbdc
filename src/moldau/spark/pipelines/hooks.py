"""What a pipeline reads and writes, seen and completed as it happens.

A pipeline is plain PySpark, and Spark has no place to say "all queries of this program". So while a pipeline
is set up, the methods that read and write stand behind ours: the address of the cluster is filled in where an
option for it is missing, each query gets its checkpoint under the pipeline's own directory, `--once` changes
its trigger, and a pipeline that is only validated starts nothing, and writes nothing in SQL either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from moldau.spark.pipelines.statements import check, may_write

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "moldau"

# Batch writes that a dry run leaves out; `save` is one too, and seen to below.
_BATCH_WRITES: Final = (
    *("saveAsTable", "insertInto", "json", "parquet", "text", "csv", "orc", "xml", "jdbc"),
)
_BATCH_WRITES_V2: Final = (
    "create",
    "replace",
    "createOrReplace",
    "append",
    "overwrite",
    "overwritePartitions",
)

_MERGES: Final = ("merge",)


class PipelineMistake(Exception):
    """Something in the pipeline that would go wrong later, in words for who wrote it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Something that a pipeline reads or writes."""

    verb: Literal["read", "write"]
    format: str
    options: Mapping[str, str]
    is_stream: bool


@dataclass(slots=True)
class Setup:
    """How the pipeline is to be set up, and what is seen of it meanwhile."""

    name: str
    checkpoints: Path
    # Options of the format moldau where the pipeline gives none; some only where it reads a stream.
    defaults: Mapping[str, str]
    stream_defaults: Mapping[str, str] = field(default_factory=dict)
    trigger: Mapping[str, object] | None = None
    is_dry: bool = False
    # Asked before the first query starts.
    on_access: Callable[[Access], None] = lambda access: None
    accesses: list[Access] = field(default_factory=list)
    queries: list[StreamingQuery] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    # Statements of SQL that a dry run did not run.
    left_out: list[str] = field(default_factory=list)

    def note(self, access: Access) -> None:
        """Something is read or written."""
        if access not in self.accesses:
            self.accesses.append(access)
            self.on_access(access)

    def name_query(self, given: str | None) -> str:
        """The name of a query, which is the pipeline's if it has only this one."""
        if given is None and self.name in self.names:
            raise PipelineMistake(
                "two queries have no name, so that their checkpoints could not be told apart after a restart:"
                ' give each a name with .queryName("...")'
            )
        name = given or self.name
        if name in self.names:
            raise PipelineMistake(f"two queries are called {name!r}: their checkpoints would be the same")
        self.names.append(name)
        return name

    def checkpoint_of(self, query: str) -> str:
        """Where a query keeps how far it is."""
        return (self.checkpoints / re.sub(r"[^A-Za-z0-9._-]", "_", query)).as_uri()


class NotStarted:
    """What stands for a query while a pipeline is only validated."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = self.runId = "00000000-0000-0000-0000-000000000000"
        self.isActive = False
        self.status: Mapping[str, object] = {
            "message": "Not started",
            "isDataAvailable": False,
            "isTriggerActive": False,
        }
        self.lastProgress = None
        self.recentProgress: list[object] = []

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802
        """It has ended already."""
        return True

    def processAllAvailable(self) -> None:  # noqa: N802
        """There is nothing to process."""

    def stop(self) -> None:
        """It does not run."""

    def explain(self, extended: bool = False) -> None:
        """It has no plan yet."""

    def exception(self) -> None:
        """Nothing has gone wrong."""


@contextmanager
def hooked(setup: Setup) -> Iterator[None]:
    """Within the block, all that reads and writes in a classic session goes through `setup`."""
    from pyspark.sql import SparkSession
    from pyspark.sql.merge import MergeIntoWriter
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    with ExitStack() as patches:
        for reader, is_stream in ((DataFrameReader, False), (DataStreamReader, True)):
            patches.enter_context(_replaced(reader, "load", _reading(setup, reader.load, is_stream)))
        for name in ("start", "toTable"):
            starting = _starting(setup, getattr(DataStreamWriter, name))
            patches.enter_context(_replaced(DataStreamWriter, name, starting))
        patches.enter_context(_replaced(DataFrameWriter, "save", _saving(setup, DataFrameWriter.save)))
        if setup.is_dry:
            for writer, names in (
                (DataFrameWriter, _BATCH_WRITES),
                (DataFrameWriterV2, _BATCH_WRITES_V2),
                (MergeIntoWriter, _MERGES),
            ):
                for name in names:
                    patches.enter_context(_replaced(writer, name, _nothing))
            patches.enter_context(_replaced(SparkSession, "sql", _looking(setup, SparkSession.sql)))
        yield


@contextmanager
def hooked_connect(setup: Setup) -> Iterator[None]:
    """The same for what a graph reads through Spark Connect; what it should write is in the graph.

    Of SQL, Spark itself refuses there what may write.
    """
    from pyspark.sql.connect.merge import MergeIntoWriter
    from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
    from pyspark.sql.connect.streaming.readwriter import DataStreamReader, DataStreamWriter

    def reading(original: Callable[..., object], is_stream: bool) -> Callable[..., object]:
        @wraps(original)
        def load(  # type: ignore[no-untyped-def]
            self,
            path=None,
            format=None,  # noqa: A002
            schema=None,
            **options,
        ):
            if format is not None:
                self.format(format)
            self.options(**options)
            given = {name: str(value) for name, value in self._options.items()}
            complete(setup, "read", self._format or "", given, is_stream, self.option)
            return original(self, path, None, schema)

        return load

    with ExitStack() as patches:
        for reader, is_stream in ((DataFrameReader, False), (DataStreamReader, True)):
            patches.enter_context(_replaced(reader, "load", reading(reader.load, is_stream)))
        if setup.is_dry:
            for writer, names in (
                (DataFrameWriter, ("save", *_BATCH_WRITES)),
                (DataFrameWriterV2, _BATCH_WRITES_V2),
                (MergeIntoWriter, _MERGES),
                (DataStreamWriter, ("start", "toTable")),
            ):
                for name in names:
                    patches.enter_context(_replaced(writer, name, _nothing))
        yield


def _nothing(*args: object, **given: object) -> None:
    """What a dry run does instead of writing."""


def complete(
    setup: Setup,
    verb: Literal["read", "write"],
    source: str,
    options: Mapping[str, str],
    is_stream: bool,
    set_option: Callable[[str, str], object],
) -> None:
    """Fill in what was left out, and note what is read or written."""
    found = dict(options)
    if source == FORMAT:
        given = {name.lower() for name in options}
        defaults = dict(setup.defaults)
        if verb == "read" and is_stream and not given & {"groupidprefix", "kafka.group.id"}:
            defaults |= setup.stream_defaults
        for name, value in defaults.items():
            if name.lower() not in given:
                set_option(name, value)
                found[name] = value
    setup.note(Access(verb, source, found, is_stream))


# ---------------------------------------------------------------- the methods that stand before Spark's


def _reading(setup: Setup, original: Callable[..., object], is_stream: bool) -> Callable[..., object]:
    @wraps(original)
    def load(  # type: ignore[no-untyped-def]
        self,
        path=None,
        format=None,  # noqa: A002
        schema=None,
        **options,
    ):
        if format is not None:
            self.format(format)
        self.options(**options)
        source, given = _inside(self._jreader)
        complete(setup, "read", source, given, is_stream, self.option)
        return original(self, path, None, schema)

    return load


def _starting(setup: Setup, original: Callable[..., object]) -> Callable[..., object]:
    @wraps(original)
    def start(  # type: ignore[no-untyped-def]
        self,
        path=None,
        format=None,  # noqa: A002
        outputMode=None,  # noqa: N803
        partitionBy=None,  # noqa: N803
        queryName=None,  # noqa: N803
        **options,
    ):
        self.options(**options)
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        source, given = _inside(self._jwrite)
        complete(setup, "write", source, given, True, self.option)
        by_name = {name.lower(): value for name, value in given.items()}
        name = setup.name_query(by_name.get("queryname"))
        self.queryName(name)
        if "checkpointlocation" not in by_name:
            self.option("checkpointLocation", setup.checkpoint_of(name))
        if setup.trigger is not None:
            self.trigger(**setup.trigger)
        if setup.is_dry:
            return NotStarted(name)
        query: StreamingQuery = original(self, path, None, outputMode, partitionBy)  # type: ignore[assignment]
        setup.queries.append(query)
        return query

    return start


def _saving(setup: Setup, original: Callable[..., object]) -> Callable[..., object]:
    @wraps(original)
    def save(  # type: ignore[no-untyped-def]
        self,
        path=None,
        format=None,  # noqa: A002
        mode=None,
        partitionBy=None,  # noqa: N803
        **options,
    ):
        self.options(**options)
        if format is not None:
            self.format(format)
        source, given = _inside(self._jwrite)
        complete(setup, "write", source, given, False, self.option)
        return None if setup.is_dry else original(self, path, None, mode, partitionBy)

    return save


def _looking(setup: Setup, original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @wraps(original)
    def sql(  # type: ignore[no-untyped-def]
        self,
        sqlQuery,  # noqa: N803
        args=None,
        **frames,
    ):
        from pyspark.sql.sql_formatter import SQLStringFormatter
        from pyspark.sql.types import StructType

        formatter = SQLStringFormatter(self)
        try:
            text = formatter.format(sqlQuery, **frames) if frames else sqlQuery
            if may_write(self, text, has_arguments=bool(args), own_folder=setup.checkpoints.parent):
                if not (args or setup.left_out):
                    # Behind another it may well lack what that would have made.
                    check(self, text)
                setup.left_out.append(" ".join(sqlQuery.split()))
                return self.createDataFrame([], StructType([]))
        finally:
            formatter.clear()
        return original(self, sqlQuery, args, **frames)

    return sql


@contextmanager
def _replaced(owner: type, name: str, method: Callable[..., object]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _inside(java: JavaObject) -> tuple[str, dict[str, str]]:
    """The format and the options that a reader or writer has been given; Spark shows them to nobody."""
    options = {}
    each = _field(java, "extraOptions").originalMap().iterator()
    while each.hasNext():
        pair = each.next()
        options[str(pair._1())] = str(pair._2())
    return str(_field(java, "source") or ""), options


def _field(java: JavaObject, name: str) -> JavaObject:
    found = java.getClass()
    while found is not None:
        for each in found.getDeclaredFields():
            if each.getName() == name:
                each.setAccessible(True)
                return each.get(java)
        found = found.getSuperclass()
    raise AttributeError(f"Spark's {java.getClass().getName()} has no {name}: is PySpark newer than 4.3?")
