"""The settings that Spark is started with, unless its user says otherwise, and how quiet its log is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moldau.spark.pipelines.preflight import is_local_master
from moldau.spark.pipelines.projects import Kind, Project
from moldau.spark.pipelines.state import PipelineDirectory

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOOPBACK: Final = "127.0.0.1"

_LOG_BYTES_MAX: Final = 10_000_000
_LOG_FILES: Final = 3

# What the data source `moldau` and a terminal need.
_ALWAYS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
# Spark's graphs run behind Spark Connect, which is served here for this process alone.
_DECLARATIVE: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.connect.serverStacktrace.enabled": "false",
}


def spark_settings(
    project: Project,
    directory: PipelineDirectory,
    *,
    master: str,
    given: Mapping[str, str],
) -> dict[str, str]:
    """All settings of a session; those that were given go before ours."""
    settings = {**_ALWAYS, "spark.app.name": project.name, "spark.master": master}
    # Else each run would leave folders wherever it was started from.
    settings["spark.sql.warehouse.dir"] = directory.tables.as_uri()
    if is_local_master(master):
        # 200 tasks for each step of a stateful query are for clusters. A checkpoint keeps its first number.
        settings["spark.sql.shuffle.partitions"] = str(_cores(master))
        settings["spark.driver.host"] = LOOPBACK
        settings["spark.driver.bindAddress"] = LOOPBACK
    java_options = [f'"-Dlog4j2.configurationFile={log_config_path(directory).as_uri()}"']
    if project.kind is Kind.DECLARATIVE:
        settings |= _DECLARATIVE
    if project.has_tables:
        # A catalog in memory would forget the tables, and then refuse to make them again where they are.
        settings["spark.sql.catalogImplementation"] = "hive"
        settings["spark.hadoop.javax.jdo.option.ConnectionURL"] = (
            f"jdbc:derby:;databaseName={directory.metastore};create=true"
        )
        java_options.append(f'"-Dderby.system.home={directory.logs}"')
    given = {**project.configuration, **given}
    java_options.append(given.get(JAVA_OPTIONS, ""))
    return settings | given | {JAVA_OPTIONS: " ".join(filter(None, java_options))}


def _cores(master: str) -> int:
    match = re.match(r"local\[(\d+)", master)
    if match is not None:
        return int(match[1])
    return 1 if master == "local" else os.cpu_count() or 1


def log_config_path(directory: PipelineDirectory) -> Path:
    """Where the configuration of Spark's log is."""
    return directory.logs / "log4j2.properties"


def log_config(directory: PipelineDirectory, *, is_verbose: bool) -> str:
    """Warnings go to a file that does not grow for ever; a verbose run tells everything, on stderr too."""
    path = str(directory.log_file).replace("\\", "\\\\")
    stem = path.removesuffix(".log")
    console = (
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return (
        f"rootLogger.level = {'info' if is_verbose else 'warn'}\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = RollingFile\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {path}\n"
        f"appender.file.filePattern = {stem}.%i.log\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex\n"
        "appender.file.policies.type = Policies\n"
        "appender.file.policies.size.type = SizeBasedTriggeringPolicy\n"
        f"appender.file.policies.size.size = {_LOG_BYTES_MAX}\n"
        "appender.file.strategy.type = DefaultRolloverStrategy\n"
        f"appender.file.strategy.max = {_LOG_FILES}\n" + (console if is_verbose else "")
    )
