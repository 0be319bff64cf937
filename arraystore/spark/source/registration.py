"""Registration of the data source with Spark."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from arraystore.errors import InvalidInputError
from arraystore.spark.cluster import classic_context
from arraystore.spark.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the calling thread, and register ``format("arraystore")`` with it.

    Spark looks up data sources of Python for ``df.write.save()`` in the session that is active in the thread, and
    PySpark activates one in the main thread alone: in any other thread saving fails with ``DATA_SOURCE_NOT_FOUND``.
    Call this first there.

    Parameters
    ----------
    spark
        The session; with Spark Connect, which has no such threads, it is only registered with.

    Raises
    ------
    InvalidInputError, SparkUnavailableError
        As `register`.
    """
    register(spark)
    session: Any = spark
    if classic_context(spark) is not None:
        session._jsparkSession.setActiveSession(session._jsparkSession)


def register(spark: SparkSession) -> None:
    """Register ``format("arraystore")`` with a Spark session; calling it again has no effect.

    Spark also discovers data sources by itself, but none of them if it cannot import one.

    Parameters
    ----------
    spark
        The session; other sessions are not affected.

    Raises
    ------
    InvalidInputError
        If this is not a Spark session.
    SparkUnavailableError
        If PySpark is older than 4.0, or PyArrow is missing.
    """
    sources = getattr(spark, "dataSource", None)
    if sources is None:
        if not hasattr(spark, "version"):
            raise InvalidInputError(f"a session of Spark is needed, not {type(spark).__name__}")
        raise SparkUnavailableError(f"Spark {spark.version} has no data sources in Python: it takes 4.0 or newer")
    if find_spec("pyarrow") is None:
        raise SparkUnavailableError("PyArrow is not installed: pip install 'arraystore[spark]'")
    from arraystore.spark.source.source import ArrayStoreDataSource, RemoteArrayStoreDataSource

    source = RemoteArrayStoreDataSource if classic_context(spark) is None else ArrayStoreDataSource
    try:
        sources.register(source)
    except Exception as error:
        # Spark 4.0 does not replace what it has discovered by itself, which is the same.
        if "[DATA_SOURCE_ALREADY_EXISTS]" not in str(error):
            raise
