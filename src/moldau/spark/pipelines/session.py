"""A Spark session of our own: its Java process started quietly, watched, and ended with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from moldau.spark.pipelines.processes import ProcessId, identify
from moldau.spark.pipelines.settings import LOOPBACK

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_STOP_TIMEOUT_S: Final = 20.0
_LISTENERS_TIMEOUT_MS: Final = 10_000
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CONNECT_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"

Say = Callable[[str], None]


class SparkFailed(Exception):
    """Spark could not be started; the text is the reason, as far as its log has one."""


@dataclass(slots=True)
class Session:
    """Spark, running."""

    spark: SparkSession
    context: SparkContext
    # The session behind `spark`, in Java, where its queries can be seen.
    java_session: JavaObject
    java: ProcessId | None
    gateway: JavaGateway
    is_connect: bool

    def tell_listeners(self) -> None:
        """Wait, but not for ever, until listeners have been told all that has happened."""
        from py4j.protocol import Py4JError

        with contextlib.suppress(Py4JError, OSError):
            self.context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_TIMEOUT_MS)

    @property
    def ui_url(self) -> str | None:
        """Where Spark's own pages are, if it serves them."""
        url: str | None = self.context.uiWebUrl
        return url

    def stop(self) -> None:
        """End Spark and its Java process."""
        from py4j.protocol import Py4JError

        if self.is_connect:
            with contextlib.suppress(Exception):
                self.spark.client.close()
        # Whatever is left of it ends with the process below.
        with contextlib.suppress(Py4JError, OSError):
            self.context.stop()
        process = self.gateway.proc
        with contextlib.suppress(Exception):
            self.gateway.shutdown()
        end_process(process)

    def is_alive(self) -> bool:
        """Whether its Java process runs."""
        return self.gateway.proc.poll() is None

    def how_it_ended(self) -> str:
        """What became of the Java process."""
        code = self.gateway.proc.returncode
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the Java process at once."""
        self.gateway.proc.kill()


def open_session(
    settings: Mapping[str, str],
    *,
    worker_python: str,
    is_connect: bool,
    log_file: Path,
    say: Say,
    is_verbose: bool = False,
) -> Session:
    """Start Spark; what its Java process prints goes to `say`, what it complains of to the log."""
    os.environ["PYSPARK_PYTHON"] = worker_python
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", worker_python)
    if settings.get("spark.driver.bindAddress") == LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if is_connect:
        os.environ.setdefault(_TOKEN_VARIABLE, secrets.token_urlsafe(24))
    # Each thread here is one thread in Java, which has its own locks: `stopping` takes some.
    os.environ["PYSPARK_PIN_THREAD"] = "true"
    # A session elsewhere is not what was asked for.
    os.environ.pop("SPARK_REMOTE", None)

    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAll(list(settings.items()))
    log_begin = log_file.stat().st_size if log_file.exists() else 0
    with log_file.open("ab") as log:
        streams: dict[str, object] = {
            "stdout": subprocess.PIPE,
            "stderr": None if is_verbose else log,
            # Ctrl-C and the end of a terminal are for this process, which tells Spark in its own way.
            "start_new_session": True,
        }
        try:
            gateway = launch_gateway(conf, popen_kwargs=streams)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            raise SparkFailed(_reason(log_file, log_begin) or str(error)) from error
    _pass_on(gateway.proc.stdout, say)
    java = identify(gateway.proc.pid)
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        classic = SparkSession(context)
        spark = _connected(context) if is_connect else classic
    except BaseException as error:
        gateway.proc.kill()
        if isinstance(error, Exception):
            raise SparkFailed(_first_line(error)) from error
        raise
    return Session(spark, context, classic._jsparkSession, java, gateway, is_connect)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Let Java end, which it does when nobody holds its input any more."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _connected(context: SparkContext) -> SparkSession:
    """The session that Spark's graphs need, served by the one that there is."""
    from typing import cast

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    java = context._jvm.java  # type: ignore[union-attr]
    service = java.lang.Class.forName(_CONNECT_SERVICE).getField("MODULE$").get(None)
    os.environ["SPARK_LOCAL_REMOTE"] = "1"
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    # By this name, and no other, its client asks for no TLS.
    spark = ConnectSession.builder.remote(f"sc://localhost:{service.localPort()}/").getOrCreate()
    return cast(SparkSession, spark)


def _pass_on(stream: IO[bytes], say: Say) -> None:
    def read() -> None:
        for line in stream:
            say(line.decode(errors="replace").rstrip("\n"))

    threading.Thread(target=read, name="what Java prints", daemon=True).start()


def _reason(log_file: Path, begin: int) -> str:
    """What a Java process that did not even start has said last."""
    with log_file.open("rb") as log:
        log.seek(begin)
        said = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in said if "Exception" in line or "Error" in line or "error" in line]
    return (telling or said or [""])[0].strip()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("java.", "org.", "scala."))]
    return (causes or lines or [type(error).__name__])[0].removeprefix(": ")
