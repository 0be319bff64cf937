"""Spark sessions: the active one, or a quiet one that is started here."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from arraystore.spark.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_HOW_TO_GET_JAVA = (
    f"Spark needs a Java runtime, version {OLDEST_JAVA} or newer: install one (apt install openjdk-17-jre-headless, "
    "brew install openjdk@17), or point JAVA_HOME at it"
)
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Halves the cost of a task: workers then talk over a socket file instead of TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The one value with which Spark does not add up the bytes of the batch again before each row that it sends to
    # Python: of 2.8 CPU seconds that 4.2 million rows of a place and a value took, shuffle and all, 0.9 went there.
    # Rows of a batch are limited as before; 65,535 of them in place of 10,000 change nothing that can be measured.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}


def active_session() -> SparkSession | None:
    """Return the active Spark session of this process, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()  # also in threads that have not started one themselves
    except PySparkException:
        return None
    context = getattr(session, "_sc", None)
    return None if context is not None and context._jsc is None else session  # its context was stopped beneath it


def parallelism(master: str | None = None) -> int:
    """Return the count of tasks that run at once, as far as it is known before Spark starts."""
    session = active_session()
    if session is not None:
        return slots(session)
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master or "local[*]")
    if match is not None and match[1] is None:
        return 1
    if match is not None and match[1] != "*":
        return int(match[1])
    return os.cpu_count() or 1


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Return the Spark context of a session; None under Spark Connect, where the driver is another process."""
    from pyspark.sql.utils import is_remote

    return None if is_remote() or type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def slots(spark: SparkSession) -> int:
    """Return the count of tasks that a running session runs at once."""
    context = classic_context(spark)
    if context is not None:
        return context.defaultParallelism
    configured = spark.conf.get("spark.default.parallelism", None) or spark.conf.get(_LEAVES, None)
    if configured is not None and configured.isdigit():
        return int(configured)
    from pyspark.sql.functions import spark_partition_id

    key = id(spark)
    if key not in _counted:  # a range has as many partitions as there are slots, and Connect exposes nothing else
        _counted[key] = spark.range(_MOST_COUNTED).select(spark_partition_id()).distinct().count()
    return _counted[key]


_LEAVES = "spark.sql.leafNodeDefaultParallelism"
_MOST_COUNTED = 4096
_counted: dict[int, int] = {}


def required_session(spark: SparkSession | None) -> SparkSession:
    """Return the session that is passed, or the active one."""
    session = spark or active_session()
    if session is None:
        raise SparkUnavailableError(
            "no Spark session runs in this process: pass spark=, or start one (arraystore.spark.start_session())"
        )
    return session


def start_session(master: str | None = None, name: str = "arraystore") -> SparkSession:
    """Return the running Spark session, or start one.

    A session that is started here is quiet: the Java virtual machine writes to a log file, whose path is in the error
    if it does not start.

    Parameters
    ----------
    master
        As in Spark; `None` means ``local[*]``, or the value in Spark's own configuration.

    Raises
    ------
    SparkUnavailableError
        If PySpark or Java is missing, or Spark does not start.
    """
    session = active_session()
    if session is not None:
        return session
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailableError("PySpark is not installed: pip install 'arraystore[spark]'") from error
    check_java()
    # Executors must run this very Python: another one has other packages, or none.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config(map=dict(_SETTINGS))
    if master is not None:
        builder = builder.master(master)
    elif "MASTER" not in os.environ and "PYSPARK_SUBMIT_ARGS" not in os.environ and "SPARK_HOME" not in os.environ:
        builder = builder.master("local[*]")
    if (master or "local").startswith("local"):
        builder = builder.config(map={"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
    log = tempfile.NamedTemporaryFile(prefix="arraystore-spark-", suffix=".log", delete=False)  # noqa: SIM115
    try:
        with log, _stderr_into(log.fileno()):
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SparkUnavailableError(f"Spark did not start ({reason}); its log is {log.name}") from error
    _logs.append(log.name)
    return session


_logs: list[str] = []
"""Log files of the Java virtual machines of this process; deleted when the process ends."""


def keep_logs() -> list[str]:
    """Keep the logs when the process ends, and return their paths."""
    kept = list(_logs)
    _logs.clear()
    return kept


@atexit.register
def _delete_logs() -> None:
    for path in _logs:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def _stderr_into(target: int) -> Iterator[None]:
    """Redirect file descriptor 2, for processes that start within the block and inherit it."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def check_java() -> None:
    """Check that a Java runtime is installed that Spark can use; raise `SparkUnavailableError`."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home} has no bin/java" if home else "java is not on PATH"
        raise SparkUnavailableError(f"{where}. {_HOW_TO_GET_JAVA}")
    try:
        completed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - fixed arguments
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailableError(f"{java} does not run ({error}). {_HOW_TO_GET_JAVA}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    if match is None:
        raise SparkUnavailableError(f"{java} does not print its version. {_HOW_TO_GET_JAVA}")
    if int(match[1]) < OLDEST_JAVA:
        raise SparkUnavailableError(f"{java} is Java {match[1]}. {_HOW_TO_GET_JAVA}")
