"""Running a graph of Spark's declarative pipelines: its files define it, an update brings it up to date."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.pipelines.hooks import PipelineMistake, Setup, complete, hooked_connect
from moldau.spark.pipelines.projects import Project
from moldau.spark.pipelines.sql import SinkTable, SourceView, SqlFile, read_sql

if TYPE_CHECKING:
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry
    from pyspark.pipelines.output import Output
    from pyspark.sql import DataFrame, SparkSession


class UpdateFailed(Exception):
    """An update of the graph has failed; the cause says why."""


def update(
    project: Project,
    spark: SparkSession,
    setup: Setup,
    *,
    storage: str,
    told: Callable[[str], None],
    refresh_all: bool = False,
) -> None:
    """Bring all tables and sinks up to date; a dry one only looks whether it could be done."""
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    graph_id = create_dataflow_graph(
        spark,
        default_catalog=project.catalog,
        default_database=project.database,
        sql_conf=dict(project.configuration),
    )
    with hooked_connect(setup):
        _register(project, spark, graph_id, setup)
    events = start_run(
        spark,
        graph_id,
        full_refresh=[],
        full_refresh_all=refresh_all,
        refresh=[],
        dry=setup.is_dry,
        storage=storage,
    )
    for result in events:
        if "pipeline_event_result" in result:
            told(result["pipeline_event_result"].event.message)


def storage_url(project: Project, default: Path) -> str:
    """Where the checkpoints of a graph are: a URL, a path in the project, or else the default."""
    if project.storage is None:
        return default.absolute().as_uri()
    if "://" in project.storage or project.storage.startswith("file:"):
        return project.storage
    return (project.root / project.storage).absolute().as_uri()


# ---------------------------------------------------------------- the files of the graph


def _register(project: Project, spark: SparkSession, graph_id: str, setup: Setup) -> None:
    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    registry = SparkConnectGraphElementRegistry(spark, graph_id)
    sinks = _complete_sinks(registry, setup)
    if str(project.root) not in sys.path:
        sys.path.insert(0, str(project.root))
    with (
        _directory(project.root),
        graph_element_registration_context(registry),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph_id, flow_name=None),
    ):
        files = project.files()
        for path in files:
            if path.suffix == ".py":
                _load(path, spark)
            elif path.suffix != ".sql":
                raise PipelineMistake(f"{path.name} is neither Python nor SQL: leave it out of 'libraries:'")
        _register_sql([path for path in files if path.suffix == ".sql"], project.root, spark, registry, sinks)


def _load(path: Path, spark: SparkSession) -> None:
    from pyspark.pipelines.block_session_mutations import block_session_mutations

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    with block_session_mutations():
        spec.loader.exec_module(module)


def _register_sql(
    paths: list[Path], root: Path, spark: SparkSession, registry: GraphElementRegistry, sinks: list[str]
) -> None:
    """First what other files may refer to, then the rest."""
    texts = {path: path.read_text() for path in paths}

    def read(path: Path) -> SqlFile:
        beside = [text for other, text in texts.items() if other != path]
        return read_sql(texts[path], sinks=sinks, beside=beside)

    for path in paths:
        for sink in read(path).sinks:
            _define_sink(sink)
    for path in paths:
        found = read(path)
        for source in found.sources:
            _define_view(source, spark)
        if not found.is_rest_empty:
            registry.register_sql(found.rest, path.relative_to(root))
        for flow in found.flows:
            _define_flow(flow.name, flow.target, flow.query, spark)


def _define_view(source: SourceView, spark: SparkSession) -> None:
    from pyspark import pipelines

    def rows() -> DataFrame:
        reader = spark.readStream if source.is_stream else spark.read
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.format(source.format).options(**source.options).load()

    pipelines.temporary_view(name=source.name)(rows)


def _define_sink(sink: SinkTable) -> None:
    from pyspark import pipelines

    pipelines.create_sink(sink.name, sink.format, dict(sink.options))


def _define_flow(name: str, target: str, query: str, spark: SparkSession) -> None:
    from pyspark import pipelines

    def rows() -> DataFrame:
        return spark.sql(query)

    pipelines.append_flow(name=name, target=target)(rows)


def _complete_sinks(registry: GraphElementRegistry, setup: Setup) -> list[str]:
    """Let sinks know the cluster as readers do; gives the names of all sinks, as they come."""
    from pyspark.pipelines.output import Sink

    names: list[str] = []
    register = registry.register_output

    def register_output(output: Output) -> None:
        if isinstance(output, Sink):
            names.append(output.name)
            options = dict(output.options)
            complete(setup, "write", output.format, output.options, True, options.__setitem__)
            output = replace(output, options=options)
        register(output)

    registry.register_output = register_output  # type: ignore[method-assign]
    return names


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
