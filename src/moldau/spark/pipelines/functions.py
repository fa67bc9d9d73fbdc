"""Running a pipeline that is a function: it is given the session, and starts queries or does a batch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from moldau.spark.pipelines.hooks import NotStarted, PipelineMistake
from moldau.spark.pipelines.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MODULE_PREFIX: Final = "moldau_pipeline_"


class QueryFailed(Exception):
    """A query of the pipeline has died; the cause is what it died of."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The query {name!r} has failed.")
        self.name = name


def call(project: Project, spark: SparkSession) -> None:
    """Load the file and call the function; writers that it returns are started too."""
    assert project.file is not None, "a function is in a file"
    # Modules beside the file can be imported, here and by workers.
    if str(project.root) not in sys.path:
        sys.path.insert(0, str(project.root))
    spec = importlib.util.spec_from_file_location(f"{_MODULE_PREFIX}{project.file.stem}", project.file)
    assert spec is not None and spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    # Pickled by value: workers do not know a module that is only loaded here.
    sys.modules[spec.name] = module
    _pickle_by_value(module)
    spec.loader.exec_module(module)
    function = getattr(module, project.function, None)
    if not callable(function):
        raise PipelineMistake(f"{project.file.name} has no function {project.function!r} after it was loaded")
    _start_what_is_returned(function(spark))


def _start_what_is_returned(result: object) -> None:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if result is None or isinstance(result, StreamingQuery | NotStarted):
        return
    if isinstance(result, DataStreamWriter):
        result.start()
        return
    if isinstance(result, dict):
        for name, writer in result.items():
            if isinstance(writer, DataStreamWriter):
                writer.queryName(str(name)).start()
            else:
                _start_what_is_returned(writer)
        return
    if isinstance(result, Iterable) and not isinstance(result, str):
        for each in result:
            _start_what_is_returned(each)
        return
    raise PipelineMistake(
        f"the function returned {type(result).__name__}: it must return nothing, a query, a writer of a"
        " stream, or several of these"
    )


def wait_for_queries(
    queries: list[StreamingQuery], *, is_stopping: Callable[[], bool], sleep: Callable[[float], object]
) -> None:
    """Wait until all queries have ended; QueryFailed as soon as one has failed."""
    while True:
        active = [query for query in queries if query.isActive]
        for query in queries:
            error = None if query in active else query.exception()
            if error is not None and not is_stopping():
                raise QueryFailed(query.name or query.id) from error
        if not active:
            return
        sleep(0.2)


def _pickle_by_value(module: object) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
