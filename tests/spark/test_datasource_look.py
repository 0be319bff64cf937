"""History, nodes, branches and tags as rows, with ``option("history" | "list" | "refs", "true")``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, Repository
from arraystore.cli.main import main
from tests.spark.support import new_repository, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="g/a", shape=(4, 6), chunks=(2, 3), dtype="f8", dimension_names=("y", "x")
    )
    array[:2] = np.random.default_rng(1).random((2, 6))
    zarr.create_array(session.store, name="scalar", shape=(), dtype="i4")
    session.commit("first", metadata={"grüße": [1, None]})
    repo.create_tag("v1", repo.lookup_branch("main"))
    with repo.transaction("main", message="second") as store:
        zarr.open_array(store, path="g/a", mode="r+")[:2, :3] = 0.0
    return repo


def test_a_look_that_is_off_is_a_load(spark: SparkSession, path: str, repo: Repository) -> None:
    off = {"history": "false", "list": "False", "array": "g/a"}
    assert spark.read.format("arraystore").options(**off).load(path).columns == ["y", "x", "a"]


def load(spark: SparkSession, path: str, what: str, **options: Any) -> DataFrame:
    return spark.read.format("arraystore").option(what, "true").options(**options).load(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["result"]


@pytest.mark.end_to_end
def test_the_rows_are_those_of_the_commands(
    spark: SparkSession, path: str, repo: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    history = load(spark, path, "history").toArrow().to_pylist()
    snapshots = [asdict(one) for one in repo.ancestry(branch="main")]
    assert history == [one | {"metadata": json.dumps(one["metadata"], ensure_ascii=False)} for one in snapshots]
    nodes = [row.asDict() for row in load(spark, path, "list").collect()]
    stored = [row.pop("stored_bytes") for row in nodes]
    assert nodes == [{k: v for k, v in row.items() if k != "stored_bytes"} for row in printed(capsys, "tree", path)]
    session = repo.readonly_session("main")
    (shown,) = [each for each in repo.statistics().arrays if each.path.strip("/") == "g/a"]
    by_path = dict(zip((row["path"] for row in nodes), stored, strict=True))
    assert by_path["/g/a"] == shown.native_bytes + shown.inlined_bytes
    assert (by_path["/"], len(session.chunk_coordinates("g/a"))) == (None, 1)
    refs = {(row["kind"], row["name"]): row["snapshot_id"] for row in load(spark, path, "refs").collect()}
    assert refs == {("branch", "main"): repo.lookup_branch("main"), ("tag", "v1"): repo.lookup_tag("v1")}


def test_a_frame_stays_where_the_branch_was(spark: SparkSession, path: str, repo: Repository) -> None:
    history, nodes = load(spark, path, "history"), load(spark, path, "list", group="g", tag="v1")
    with repo.transaction("main", message="third") as store:
        zarr.create_array(store, name="b", shape=(1,), dtype="i4")
    assert [row["message"] for row in history.collect()][:2] == ["second", "first"]
    assert [(row["path"], row["initialised"]) for row in nodes.collect()] == [("/g", None), ("/g/a", 2)]
    assert load(spark, path, "history", limit="1").count() == 1


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("history", {"list": "true"}, "different loads"),
        ("refs", {"branch": "main", "tag": "x"}, "each name a snapshot"),
        ("refs", {"tag": "x"}, "lists all branches and tags"),
        ("history", {"group": "g"}, "of use with 'list'"),
        ("list", {"sel": "{}"}, "no effect in looking"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    spark: SparkSession, path: str, repo: Repository, what: str, options: dict[str, str], message: str
) -> None:
    error = spark_error(lambda: load(spark, path, what, **options))
    assert isinstance(error, InvalidInputError)
    assert message in str(error)
