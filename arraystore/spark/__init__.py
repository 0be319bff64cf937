"""Work on Spark executors through forked sessions.

Importing this package does not import PySpark; calling it does.
"""

from arraystore.spark.cluster import active_session, parallelism, start_session
from arraystore.spark.errors import SparkUnavailableError, TaskFailedError
from arraystore.spark.tasks import Progress, TaskResult, run_tasks

__all__ = [
    "Progress",
    "SparkUnavailableError",
    "TaskFailedError",
    "TaskResult",
    "active_session",
    "parallelism",
    "run_tasks",
    "start_session",
]
