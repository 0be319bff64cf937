"""Archive the classes of Spark as Java wants them, so that its virtual machine starts in half the time.

    python tools/archive_spark_classes.py FILE

Java reads the file where ``-XX:SharedArchiveFile`` names it, and does without where it is missing, or where Java or a
jar is another one than it was made with.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arraystore.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(archive: Path) -> None:
    """Have a session load what most sessions load; its virtual machine writes the archive when it ends."""
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit='{archive}'"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--conf "spark.driver.extraJavaOptions={options}" pyspark-shell'
    spark = start_session("local[2]")
    with tempfile.TemporaryDirectory() as directory:
        use(spark, directory)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if not archive.exists():
        print("this Java makes no archives: Spark starts as ever")


def use(spark: SparkSession, directory: str) -> None:
    """Compute, call Python, write, and read."""
    rows = spark.range(100).selectExpr("id", "id % 7 as part")
    rows.groupBy("part").count().orderBy("part").collect()
    rows.mapInArrow(_same, rows.schema).write.parquet(f"{directory}/rows")
    spark.read.parquet(f"{directory}/rows").createOrReplaceTempView("rows")
    spark.sql("select part, sum(id) as total from rows group by part").toArrow()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
