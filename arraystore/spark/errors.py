"""What can go wrong between the driver and its tasks."""

from __future__ import annotations

from arraystore.errors import ArrayStoreError

__all__ = ["SparkUnavailableError", "TaskFailedError"]


class SparkUnavailableError(ArrayStoreError):
    """Spark cannot be started here: no Java, no PySpark, or no cluster."""


class TaskFailedError(ArrayStoreError):
    """A task failed as often as Spark allows; nothing was committed."""
