"""Registration of the data source with Spark."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    from arraystore.spark.source.source import ArrayStoreDataSource

    sources.register(ArrayStoreDataSource)
