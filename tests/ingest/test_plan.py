"""Plans name every array, refuse what does not fit with a reason and a remedy, and are the same each time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arraystore.errors import InvalidInputError
from arraystore.ingest import AlignmentError, TargetExistsError, VariableMismatchError, plan_ingest
from arraystore.ingest.model import GroupInfo, SourceInfo, VariableInfo

NOTHING = GroupInfo("/g", False)
DAYS = {"units": "days since 2000-01-01", "calendar": "360_day", "bounds": "bnds"}


def variables(length: int = 12, **changes: VariableInfo | None) -> dict[str, VariableInfo]:
    found: dict[str, VariableInfo | None] = {
        "air": VariableInfo("air", ("time", "y", "x"), (length, 200, 100), np.dtype("f4"), {"units": "K"}),
        "time": VariableInfo("time", ("time",), (length,), np.dtype("f8"), DAYS),
        "bnds": VariableInfo("bnds", ("time", "two"), (length, 2), np.dtype("f8")),
        "lat": VariableInfo("lat", ("y", "x"), (200, 100), np.dtype("f8"), {"units": "degrees_north"}),
    }
    found.update(changes)
    return {name: variable for name, variable in found.items() if variable is not None}


def source(name: str = "a.nc", length: int = 12, **changes: VariableInfo | None) -> SourceInfo:
    return SourceInfo(f"/data/{name}", "netcdf4", None, {"title": name}, variables(length, **changes))


def group(length: int = 24, chunk: int = 12, **changes: VariableInfo | None) -> GroupInfo:
    chunked = {
        name: replace(v, chunks=tuple(chunk if d == "time" else n for d, n in zip(v.dims, v.shape, strict=True)))
        for name, v in variables(length, **changes).items()
    }
    return GroupInfo("/g", True, chunked)


def changed(name: str, length: int = 12, **changes: Any) -> Mapping[str, Any]:
    return {name: replace(variables(length)[name], **changes)}


def test_a_source_becomes_new_arrays() -> None:
    plan = plan_ingest([source()], NOTHING)
    assert [array.name for array in plan.arrays] == ["air", "time", "bnds", "lat"]
    assert all(array.is_new for array in plan.arrays)
    assert not plan.appends
    assert plan.group_attrs == {"title": "a.nc"}
    assert {array.name for array in plan.arrays if array.on_driver} == {"time", "bnds"}
    assert {region.array for task in plan.tasks for region in task} == {"air", "lat"}


def test_sources_are_joined_in_the_order_given() -> None:
    plan = plan_ingest([source("b.nc", 12), source("a.nc", 24)], NOTHING, append_dim="time")
    air = plan.array("air")
    assert air.variable.shape == (36, 200, 100)
    assert [(origin.source, origin.start, origin.length) for origin in air.origins] == [(0, 0, 12), (1, 12, 24)]
    assert [(item.name, item.source, item.kept_in) for item in plan.unchanged] == [("lat", 1, 0)]


def test_an_append_starts_where_the_arrays_end() -> None:
    plan = plan_ingest([source()], group(24), append_dim="time")
    assert plan.appends
    assert [(array.name, array.start, array.variable.shape[0]) for array in plan.arrays] == [
        ("air", 24, 36), ("time", 24, 36), ("bnds", 24, 36),
    ]  # fmt: skip
    assert [(item.name, item.kept_in) for item in plan.unchanged] == [("lat", None)]
    assert min(region.box[0][0] for task in plan.tasks for region in task) == 24
    assert plan.group_attrs == {}


def test_a_region_can_draw_on_several_sources() -> None:
    sources = [source(f"{month}.nc", 1) for month in range(6)]
    plan = plan_ingest(sources, NOTHING, append_dim="time", chunks={"time": 3})
    pieces = {
        region.box[0]: [p.source for p in region.pieces] for t in plan.tasks for region in t if region.array == "air"
    }
    assert pieces == {(0, 3): [0, 1, 2], (3, 6): [3, 4, 5]}


def test_the_number_of_tasks_is_bounded() -> None:
    assert len(plan_ingest([source(length=96)], NOTHING, chunks={"time": 12}, tasks=3).tasks) <= 3
    nine_regions = plan_ingest([source(length=96)], NOTHING, chunks={"time": 12}, tasks=100)
    assert len(nine_regions.tasks) == 9  # no task without a region


def test_plans_are_deterministic_and_pickle() -> None:
    one, two = (plan_ingest([source(), source("b.nc")], group(), append_dim="time") for _ in range(2))
    assert one == two
    assert pickle.loads(pickle.dumps(one)).tasks == one.tasks


def test_variables_can_be_left_out() -> None:
    plan = plan_ingest([source()], NOTHING, skip=["lat", "bnds"])
    assert [array.name for array in plan.arrays] == ["air", "time"]
    with pytest.raises(InvalidInputError, match=r"'latt'.*air"):
        plan_ingest([source()], NOTHING, skip=["latt"])
    with pytest.raises(InvalidInputError, match="nothing to ingest"):
        plan_ingest([source()], NOTHING, skip=["air", "time", "bnds", "lat"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (changed("air", dtype=np.dtype("f8")), r"'air'.*/data/a\.nc.*float64.*group '/g'.*float32"),
        (changed("air", dims=("time", "x", "y")), r"'air'.*dimensions"),
        (changed("air", shape=(12, 200, 99)), r"'air'.*99 elements along 'x'.*100"),
        (changed("air", attrs={"units": "degC"}), r"'air'.*units='degC'.*'K'"),
        (changed("air", attrs={"units": "K", "scale_factor": 0.1}), "scale_factor=0.1"),
        (changed("air", attrs={"units": "K", "_FillValue": np.float32(1e20)}), "_FillValue"),
        (changed("time", attrs={"units": "days since 2000-01-01", "calendar": "noleap"}), "calendar"),
        (changed("time", attrs={"units": "months since 2000-01-01", "calendar": "360_day"}), "months"),
        (changed("time", attrs={}), "units=None"),
        ({"new": VariableInfo("new", ("time",), (12,), np.dtype("f4"))}, r"'new'.*lacks.*--skip new"),
        ({"bnds": None}, r"lacks the variable 'bnds'.*equal length"),
    ],
)
def test_an_append_that_does_not_fit_is_refused(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(VariableMismatchError, match=message):
        plan_ingest([source(**changes)], group(), append_dim="time")


def test_a_second_source_that_does_not_fit_the_first_is_refused() -> None:
    with pytest.raises(VariableMismatchError, match=r"/data/b\.nc.*float64.*source '/data/a\.nc'"):
        plan_ingest([source(), source("b.nc", **changed("air", dtype=np.dtype("f8")))], NOTHING, append_dim="time")


def test_attributes_that_only_describe_may_differ() -> None:
    attrs = {"units": "K", "history": "made yesterday"}
    assert plan_ingest([source(**changed("air", attrs=attrs))], group(), append_dim="time").appends


def test_nan_as_fill_value_means_the_same_as_none() -> None:
    attrs = {"units": "K", "_FillValue": np.float32(np.nan)}
    assert plan_ingest([source(**changed("air", attrs=attrs))], group(), append_dim="time").appends


def test_other_time_units_are_turned_into_those_of_the_array_together_with_the_bounds() -> None:
    hours = {**DAYS, "units": "hours since 2000-01-02"}
    plan = plan_ingest([source(**changed("time", attrs=hours))], group(), append_dim="time")
    recode = plan.array("time").origins[0].recode
    assert recode is not None
    assert (24 * recode.numerator + recode.offset) / recode.denominator == 2  # a day after the second of January
    assert plan.array("bnds").origins[0].recode == recode
    assert plan.array("air").origins[0].recode is None


def test_an_append_within_a_chunk_is_refused_and_says_which_chunks_would_do() -> None:
    with pytest.raises(
        AlignmentError, match=r"'air' ends at time=25, inside a chunk of 12 .*24 and 36.*--chunks time=5"
    ):
        plan_ingest([source()], group(25), append_dim="time")


def test_small_arrays_that_the_driver_writes_need_no_aligned_end() -> None:
    target = group(25, air=None, lat=None)
    assert plan_ingest([source(air=None, lat=None)], target, append_dim="time").array("time").start == 25


def test_an_end_that_bars_the_next_append_is_remarked() -> None:
    plan = plan_ingest([source(length=25)], NOTHING, append_dim="time", chunks={"time": 12})
    assert any("'air' will end inside a chunk" in note for note in plan.notes)
    assert plan_ingest([source(length=25)], NOTHING, append_dim="time").notes == ()


def test_arrays_of_different_lengths_cannot_be_appended_to() -> None:
    target = GroupInfo("/g", True, {**group(24).arrays, "time": group(12).arrays["time"]})
    with pytest.raises(VariableMismatchError, match="different lengths"):
        plan_ingest([source()], target, append_dim="time")


def test_arrays_that_exist_are_not_replaced() -> None:
    with pytest.raises(TargetExistsError, match=r"'/g' already has 'air'.*--append-dim"):
        plan_ingest([source()], group())


def test_a_group_of_the_old_format_takes_no_new_arrays() -> None:
    with pytest.raises(InvalidInputError, match="Zarr v2"):
        plan_ingest([source()], GroupInfo("/g", True, {}, 2))


def test_appending_to_arrays_without_the_dimension_is_refused() -> None:
    target = GroupInfo("/g", True, {"air": VariableInfo("air", ("y", "x"), (200, 100), np.dtype("f4"))})
    with pytest.raises(TargetExistsError, match="none of its arrays has the dimension 'time'"):
        plan_ingest([source()], target, append_dim="time")


def test_a_source_without_the_dimension_is_refused() -> None:
    with pytest.raises(VariableMismatchError, match=r"nothing along 'level'.*time, two, x, y"):
        plan_ingest([source()], NOTHING, append_dim="level")


def test_sources_of_different_variables_share_what_is_the_same() -> None:
    other = SourceInfo(
        "/data/b.nc", "netcdf4", None, {}, {"lat": variables()["lat"], "rain": replace(variables()["air"], name="rain")}
    )
    plan = plan_ingest([source(), other], NOTHING)
    assert [array.name for array in plan.arrays] == ["air", "time", "bnds", "lat", "rain"]
    assert [(item.name, item.source, item.kept_in) for item in plan.unchanged] == [("lat", 1, 0)]


def test_a_dimension_has_one_size_in_a_group() -> None:
    other = SourceInfo("/data/b.nc", "netcdf4", None, {}, {"z": VariableInfo("z", ("x",), (7,), np.dtype("f4"))})
    with pytest.raises(VariableMismatchError, match=r"'x' has 7 elements in source '/data/b\.nc'.*100"):
        plan_ingest([source(), other], NOTHING)
    with pytest.raises(VariableMismatchError, match="'x' has 7 elements"):
        plan_ingest([other], GroupInfo("/g", True, {"lat": variables()["lat"]}))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tasks": 0}, "at least one task"), ({"chunks": {"tiem": 3}}, "'tiem'.*bnds|'tiem'.*time")],
)
def test_senseless_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        plan_ingest([source()], NOTHING, **options)


def test_there_must_be_a_source() -> None:
    with pytest.raises(InvalidInputError, match="no source"):
        plan_ingest([], NOTHING)


def test_chunks_given_for_arrays_that_exist_are_remarked() -> None:
    notes = plan_ingest([source()], group(), append_dim="time", chunks={"time": 6}).notes
    assert any("keep their chunks" in note for note in notes)
