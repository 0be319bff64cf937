"""Transforms from the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from tests.cli.conftest import Cli, Made


def opened(made: Made, path: str) -> Any:
    return zarr.open_array(made.open().readonly_session("main").store, path=path, mode="r")


def doubled(values: Any) -> Any:
    return values * 2


def test_rechunk_prints_its_plan_and_commits_once(cli: Cli, made: Made) -> None:
    before = opened(made, "climate/north/rain")[...]
    plan = cli("rechunk", made.url, "climate/north/rain", "--chunks", "time=-1,x=1", "--dry-run").out
    assert plan.startswith("rechunk 10×4, 160 B, directly")
    assert made.open().lookup_branch("main") == made.tip
    answer = cli("rechunk", made.url, "climate/north/rain", "--chunks", "time=-1,x=1", "-m", "series", "--json").json
    assert (answer["boxes"] > 0, answer["resumed"], answer["plan"]["intermediate"]) == (True, False, None)
    assert opened(made, "climate/north/rain").chunks == (10, 1)
    np.testing.assert_array_equal(opened(made, "climate/north/rain")[...], before)
    assert [info.message for info in made.open().ancestry(branch="main")][:2] == ["series", "more rain"]
    assert "already" in cli("rechunk", made.url, "climate/north/rain", "--chunks", "10,1").out
    cli("rechunk", made.url, "numbers", "--chunks", "2", "--target", "copy", "--memory", "1MiB")
    assert opened(made, "copy").chunks == (2,)


def test_transform_reduces_coarsens_and_calls_functions(cli: Cli, made: Made) -> None:
    rain = opened(made, "climate/north/rain")[...]
    assert "40 bytes" not in cli("transform", made.url, "climate/north/rain", "mean", "--dims", "time", "--dry-run").out
    assert made.open().lookup_branch("main") == made.tip
    cli("transform", made.url, "climate/north/rain", "mean", "--dims", "time")
    np.testing.assert_allclose(opened(made, "mean")[...], rain.mean(0))
    cli("transform", made.url, "climate/north/rain", "median", "-f", "quantile", "--quantiles", "0.5", "--dims", "x")
    np.testing.assert_allclose(opened(made, "median")[0], np.median(rain, axis=1))
    cli("transform", made.url, "climate/north/rain", "counts", "-f", "histogram", "--bins", "0,5,50", "--dims", "x")
    np.testing.assert_array_equal(opened(made, "counts")[...], [(rain < 5).sum(1), (rain >= 5).sum(1)])
    cli("transform", made.url, "climate/north/rain", "coarse", "-f", "max", "--factors", "time=5")
    np.testing.assert_array_equal(opened(made, "coarse")[...], rain.reshape(2, 5, 4).max(1))
    report = cli("transform", made.url, "numbers", "numbers", "-f", f"{__name__}:doubled", "--json").json
    assert report["report"]["array"] == "numbers"
    assert made.values("numbers") == [0, 2, 4, 6, 8, 10]


def test_pyramid_shows_and_builds_levels(cli: Cli, made: Made) -> None:
    call = ("pyramid", made.url, "climate/north/rain", "--factors", "time=2,x=2")
    assert cli(*call, "--dry-run").out.splitlines() == ["level 1: (5, 2)", "level 2: (3, 1)", "level 3: (2, 1)"]
    cli(*call, "--levels", "1")
    assert opened(made, "climate/north/overviews/1/rain").shape == (5, 2)


def test_options_that_do_not_fit_are_errors(cli: Cli, made: Made) -> None:
    array = (made.url, "climate/north/rain")
    for arguments, message in (
        (("rechunk", *array, "--chunks", "time=x"), "--chunks"),
        (("rechunk", *array, "--chunks", "a,b"), "--chunks"),
        (("rechunk", *array, "--chunks", "5,5", "--memory", "lots"), "--memory"),
        (("rechunk", *array, "--chunks", "time=5,time=4"), "each dimension once"),
        (("transform", *array, "out", "-f", "quantile"), "--quantiles"),
        (("transform", *array, "out", "--halo", "x=1"), "--halo needs"),
        (("transform", *array, "numbers", "-f", "nowhere:nothing"), "cannot be imported"),
        (("transform", *array, "out", "-f", "quantile", "--quantiles", "a"), "numbers with commas"),
        (("transform", *array, "out", "-f", "histogram"), "--bins"),
        (("transform", *array, "out", "--bins", "0,1"), "--bins"),
        (("transform", *array, "out", "-f", "histogram", "--bins", "0,1", "--factors", "x=2"), "--factors has no"),
        (("transform", *array, "out", "--factors", "x=2", "--dims", "time"), "--dims are"),
        (("transform", *array, "numbers", "-f", f"{__name__}:doubled", "--dims", "time"), "--dims are"),
        (("transform", *array, "numbers", "-f", f"{__name__}:doubled", "--overwrite"), "--overwrite has no"),
        (("transform", *array, "out", "-f", "mode"), "must be one of 'sum'"),
        (("transform", *array, "out", "-f", "std", "--factors", "x=2"), "must be one of 'mean'"),
        (("transform", *array, "numbers"), "already"),
        (("transform", *array, "climate/north", "--overwrite"), "cannot replace the group"),
        (("transform", *array, "numbers/out"), "below the array"),
        (("transform", *array, "out", "-f", "histogram", "--bins", "1,0"), "ascending order"),
        (("transform", *array, "out", "-f", "quantile", "--quantiles", "2"), "from 0 to 1"),
        (("transform", *array, "out", "-f", "max", "--factors", "x=0"), "must be an integer >= 1"),
        (("transform", *array, "numbers", "-f", f"{__name__}:doubled", "--factors", "z=2"), "no dimension 'z'"),
        (("pyramid", *array), "--factors is needed"),
    ):
        assert message in cli(*arguments, code=1).err
        if arguments[0] == "transform":
            assert message in cli(*arguments, "--dry-run", code=1).err
    assert made.open().lookup_branch("main") == made.tip
