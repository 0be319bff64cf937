"""Where Spark finds ``format("arraystore")`` by itself.

Spark imports every module whose name starts with ``pyspark_`` and asks it for ``DefaultSource``; if one of them fails,
none is found.  So importing this never fails, and there is no ``DefaultSource`` where what it needs is missing.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from arraystore.spark.source.source import ArrayStoreDataSource
        except Exception as error:
            raise AttributeError(f"module {__name__!r} has no {name!r} here: {error}") from error
        return ArrayStoreDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
