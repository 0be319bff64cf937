"""How Spark gets to know the data source."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr
from hatchling.builders.wheel import WheelBuilder

import arraystore
from arraystore import InvalidInputError, Repository, local_filesystem_storage
from arraystore.spark import SparkUnavailableError, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(arraystore.__file__).parents[1]


def run(code: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120, cwd=CHECKOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_module_that_spark_looks_for_imports_nothing():
    found = run(
        "import sys, pyspark_arraystore\n"
        "print([name for name in ('arraystore', 'pyspark', 'pyarrow', 'numpy', 'zarr') if name in sys.modules])"
    )

    assert found == "[]"


def test_the_module_offers_the_data_source_by_its_name():
    found = run(
        "import pyspark_arraystore as found\n"
        "from pyspark.sql.datasource import DataSource\n"
        "assert hasattr(found, 'DefaultSource')\n"
        "assert issubclass(found.DefaultSource, DataSource)\n"
        "print(found.DefaultSource.name(), found.DefaultSource.__module__)"
    )

    assert found == "arraystore arraystore.spark.source.source"


@pytest.mark.parametrize("missing", ["pyspark", "arraystore"])
def test_where_something_is_missing_the_module_has_no_source_and_raises_nothing(missing: str):
    found = run(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyspark_arraystore\n"
        "print(hasattr(pyspark_arraystore, 'DefaultSource'), hasattr(pyspark_arraystore, 'other'))"
    )

    assert found == "False False"


def test_the_module_has_no_source_where_importing_fails_in_any_way():
    found = run(
        "import sys, importlib.abc\n"
        "class Broken(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'arraystore': raise OSError('a library is of another machine')\n"
        "sys.meta_path.insert(0, Broken())\n"
        "import pyspark_arraystore\n"
        "print(hasattr(pyspark_arraystore, 'DefaultSource'))"
    )

    assert found == "False"


def test_the_wheel_holds_the_module_beside_the_package(tmp_path: Path):
    [wheel] = WheelBuilder(str(CHECKOUT)).build(directory=str(tmp_path), versions=["standard"])

    names = zipfile.ZipFile(wheel).namelist()
    assert "pyspark_arraystore.py" in names
    assert "arraystore/spark/source/source.py" in names


@pytest.mark.parametrize("thing", [None, object(), "local[2]"])
def test_what_is_no_session_is_refused(thing: object):
    with pytest.raises(InvalidInputError, match="a session of Spark is needed"):
        register(thing)  # type: ignore[arg-type]


def test_a_spark_without_data_sources_in_python_is_refused():
    class Old:
        version = "3.5.1"

    with pytest.raises(SparkUnavailableError, match=r"takes 4\.0"):
        register(Old())  # type: ignore[arg-type]


class OfSpark40:
    """A session that refuses sources as Spark 4.0 does."""

    version = "4.0.5"
    sparkContext = None  # noqa: N815 - Spark's name

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def dataSource(self) -> OfSpark40:  # noqa: N802 - Spark's name
        return self

    def register(self, source: type) -> None:
        raise RuntimeError(self._text)


def test_a_source_that_spark_has_found_by_itself_need_not_be_registered():
    register(OfSpark40("[DATA_SOURCE_ALREADY_EXISTS] Data source 'arraystore' already exists."))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="is closed"):
        register(OfSpark40("the session is closed"))  # type: ignore[arg-type]


def store_something(place: Path) -> str:
    repo = Repository.create(local_filesystem_storage(place, fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", data=np.arange(6), chunks=(3,), dimension_names=["x"])
    return str(place)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_registering_again_and_in_another_session_works(spark: SparkSession, tmp_path: Path):
    path = store_something(tmp_path / "repo")
    other = spark.newSession()
    for session in (spark, spark, other):
        register(session)

        assert session.read.format("ArrayStore").option("array", "a").load(path).count() == 6


@pytest.mark.end_to_end
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.thorough
def test_spark_finds_the_source_by_itself(spark: SparkSession, tmp_path: Path):
    path = store_something(tmp_path / "repo")

    frame = spark.newSession().read.format("arraystore").option("array", "a").load(path)

    assert [row["a"] for row in frame.orderBy("x").collect()] == list(range(6))
