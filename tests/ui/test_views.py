"""What views say of a repository whose history is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore
from arraystore.ui.opening import open_to_look
from arraystore.ui.views import storage_use
from tests.ui.conftest import World, viewer

View = Callable[..., Any]


def test_the_overview_has_branches_and_tags(view: View, world: World) -> None:
    found = view("overview")
    assert [(each["name"], each["snapshot"]) for each in found["branches"]] == [
        ("main", world.ids["picked"]),
        ("dev", world.ids["dev"]),
    ]
    assert [(each["name"], each["snapshot"]) for each in found["tags"]] == [("v1", world.ids["first"])]
    assert (found["status"], found["more_branches"]) == ("online", 0)


def test_the_history_is_a_graph_with_labels_and_marks(view: View, world: World) -> None:
    found = view("history")
    row = {name: found["ids"].index(identifier) for name, identifier in world.ids.items()}
    parent = {name: found["parents"][at] for name, at in row.items()}
    assert parent["picked"] == row["rebased"]
    assert parent["rebased"] == row["second"]
    assert parent["second"] == parent["dev"] == row["first"]
    assert found["parents"][parent["first"]] == -1
    assert found["labels"] == {str(row["picked"]): ["main"], str(row["dev"]): ["dev"], str(row["first"]): ["tag: v1"]}
    assert found["marks"] == {str(row["picked"]): "cherry-pick"}
    assert found["rebased"] == {str(row["rebased"]): [1, row["first"]]}
    assert found["forks"] == {str(row["second"]): 1}
    assert found["sources"] == {str(row["picked"]): world.ids["dev"]}
    assert found["subjects"][row["first"]] == "first"
    assert found["lanes"][row["dev"]] != found["lanes"][row["second"]]
    assert found["complete"]


def test_a_short_history_says_that_it_goes_on(view: View, world: World) -> None:
    found = view("history", limit="1")
    assert (found["parents"], found["complete"]) == ([-2], False)
    assert found["ids"] == [world.ids["picked"]]


def test_a_snapshot_has_its_message_and_metadata(view: View, world: World) -> None:
    found = view("snapshot", id=world.ids["first"])
    assert (found["message"], found["metadata"]) == ("first\n\nwith a body", {"by": "us"})


def test_the_tree_lists_groups_before_their_members(view: View, world: World) -> None:
    rows = view("tree", at=world.ids["first"])["rows"]
    assert [row["path"] for row in rows] == ["", "air", "air/lat", "air/packed", "air/temp", "air/time", "words"]
    assert rows[4] == {
        "path": "air/temp", "kind": "array", "shape": [4, 6, 8], "dtype": "float32",
        "dimensions": ["time", "lat", "lon"], "broken": None,
    }  # fmt: skip


@pytest.mark.parametrize("at", ["branch:main", "tag:v1", "branch:dev"])
def test_a_snapshot_is_found_by_branch_and_tag(view: View, world: World, at: str) -> None:
    names = {"branch:main": "picked", "tag:v1": "first", "branch:dev": "dev"}
    assert view("tree", at=at)["snapshot"] == world.ids[names[at]]


def test_a_node_has_its_layout_and_attributes(view: View, world: World) -> None:
    found = view("node", at="branch:main", path="air/temp")
    assert (found["shape"], found["chunks"], found["grid"]) == ([4, 6, 8], [1, 3, 4], [4, 2, 2])
    assert found["attributes"] == {"units": "K", "long_name": "Air temperature"}
    assert found["nbytes"] == 4 * 6 * 8 * 4
    assert [codec["name"] for codec in found["codecs"]] == ["bytes", "zstd"]
    assert view("node", at="branch:main", path="air")["attributes"] == {"title": "Warm air"}


def test_an_image_has_the_values_of_its_index_with_coordinates_and_dates(
    view: View, look: arraystore.Repository
) -> None:
    found = view("preview", at="branch:main", path="air/temp", index="1,0,0")
    expected = look.readonly_session("main").read("air/temp", 1)
    np.testing.assert_array_equal(found["values"], expected)
    down, across = found["axes"]
    assert down["values"] == [-50, -30, -10, 10, 30, 50]
    assert down["units"] == "degrees"
    assert across["name"] == "lon"
    assert across["labels"] is None
    assert [(each["name"], each["labels"]) for each in found["others"]] == [("time", ["2000-02-01"])]
    assert found["summary"]["minimum"] == expected.min()
    assert found["summary"]["missing"] == 0
    assert (found["title"], found["units"], found["kind"]) == ("Air temperature", "K", "image")


def test_axes_can_be_chosen_in_either_order(view: View, look: arraystore.Repository) -> None:
    found = view("preview", at="branch:main", path="air/temp", axes="2,0", index="0,4,0")
    np.testing.assert_array_equal(found["values"], look.readonly_session("main").read("air/temp")[:, 4].T)
    assert [axis["name"] for axis in found["axes"]] == ["lon", "time"]
    assert found["axes"][1]["labels"] == ["2000-01-30", "2000-02-01", "2000-02-02", "2000-02-30"]


def test_an_index_beyond_the_end_is_the_last_one(view: View) -> None:
    assert view("preview", at="branch:main", path="air/temp", index="99,0,0")["others"][0]["start"] == 3


def test_packed_values_are_unpacked_and_missing_ones_are_left_out(view: View) -> None:
    found = view("preview", at="tag:v1", path="air/packed")
    np.testing.assert_array_equal(found["values"], np.array([10, 11, np.nan, 12, 13], "f4"))
    assert (found["kind"], found["summary"]["missing"]) == ("line", 1)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 4), (0, 3, 4)])
def test_an_array_without_items_has_no_values_and_no_error(shape: tuple[int, ...]) -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    with repo.transaction("main", message="empty") as store:
        zarr.create_array(store, name="a", shape=shape, chunks=(1,) * len(shape), dtype="f4")
    found = viewer(open_to_look(storage))("preview", at="branch:main", path="a", axes="", index="")
    assert found["values"].size == found["summary"]["count"] == 0


def test_chunks_of_varying_shape_are_read_in_windows() -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    shapes = {"small": [[2, 3, 5], [5, 7]], "large": [[1_000, 9_000] * 400, [500, 500]]}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with repo.transaction("main", message="rectilinear") as store:
            for name, chunks in shapes.items():
                shape = tuple(map(sum, chunks))
                array = zarr.create_array(store, name=name, shape=shape, chunks=chunks, dtype="f8")
                array[-2:] = np.arange(2 * shape[1]).reshape(2, -1)
        ask = viewer(open_to_look(storage))
        small = ask("preview", at="branch:main", path="small")["values"]
        np.testing.assert_array_equal(small, [*[[0] * 12] * 8, range(12), range(12, 24)])
        large = ask("preview", at="branch:main", path="large", index="3999999,0")
    assert (large["clipped"], large["axes"][0]["stop"]) == (True, 4_000_000)
    assert large["summary"]["count"] <= 400 * 400


def test_text_is_a_table(view: View) -> None:
    found = view("preview", at="branch:main", path="words")
    assert (found["kind"], found["table"], found["values"]) == ("table", [["a", "<b>", "c"]], None)


def test_the_chunk_map_tells_which_chunks_are_there_and_which_this_commit_changed(view: View, world: World) -> None:
    found = view("chunks", at=world.ids["second"], path="air/temp", axes="1,2", index="0,0,0")
    assert (found["picture"]["rows"], found["picture"]["columns"]) == (2, 2)
    assert (found["chunks"], found["total"]) == (4, 4)
    assert found["changed"].tolist() == [1, 0, 0, 0]
    assert set(found["kind"].tolist()) <= {1, 2}
    assert (found["nbytes"] > 0).all()
    assert (found["time"] > 0).all()
    empty = view("chunks", at=world.ids["second"], path="air/temp", axes="1,2", index="2,0,0")
    assert (empty["chunks"], empty["kind"].tolist(), empty["changed"].tolist()) == (0, [0] * 4, [0] * 4)


def test_the_whole_grid_is_one_row_where_only_one_axis_is_long(view: View, world: World) -> None:
    found = view("chunks", at=world.ids["first"], path="air/packed")
    assert found["picture"]["axes"] is None
    assert found["count"].tolist() == found["changed"].tolist() == [1]


def test_differences_list_nodes_and_chunks(view: View, world: World) -> None:
    found = view("diff", from_=world.ids["first"], to=world.ids["picked"])
    assert [row["path"] for row in found["updated"]] == ["air"]
    assert [(row["path"], row["chunks"]) for row in found["chunks"]] == [("air/packed", 1), ("air/temp", 5)]
    assert found["counts"] == {"created": 0, "deleted": 0, "updated": 1, "moved": 0, "chunks": 2}


def test_documents_differ_line_by_line(view: View, world: World) -> None:
    found = view("diff-node", from_=world.ids["first"], to=world.ids["second"], path="air")
    changed = [line.strip() for line in found["lines"] if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ['-    "title": "Air"', '+    "title": "Warm air"']


@pytest.mark.parametrize(
    ("change", "line"),
    [({"history": "read\n" * 2_000 + "doubled"}, '+doubled",'), ({"many": [*range(3_000), -1]}, "+      -1"),
     ({"many": [], "history": ""}, "@@ 9 lines more are not shown @@")],
)  # fmt: skip
def test_documents_that_differ_far_inside_are_not_called_equal(change: dict[str, Any], line: str) -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    with repo.transaction("main", message="before") as store:
        zarr.create_group(store, attributes={"history": "read\n" * 2_000, "many": [*range(3_000)]})
    before = repo.lookup_branch("main")
    with repo.transaction("main", message="after") as store:
        zarr.open_group(store).attrs.update(change)
    ask = viewer(open_to_look(storage))
    assert line in ask("diff-node", from_=before, to="branch:main", path="")["lines"]


def test_chunks_that_differ_are_a_map(view: View, world: World) -> None:
    values = {"from_": world.ids["first"], "to": world.ids["second"], "path": "air/temp"}
    found = view("diff-node", **values, axes="1,2", index="0,0,0")
    assert (found["changed"].tolist(), found["chunks"]) == ([1, 0, 0, 0], 1)


def test_values_differ_where_they_were_written(view: View, world: World) -> None:
    found = view("diff-values", from_=world.ids["first"], to=world.ids["second"], path="air/temp")
    expected = np.zeros((6, 8), "f4")
    expected[:3, :4] = -1 - np.arange(48).reshape(6, 8)[:3, :4]
    np.testing.assert_array_equal(found["difference"], expected)
    assert found["differing"] == 12


def test_an_array_of_one_side_only_has_no_difference_of_values(view: View, world: World) -> None:
    empty = view("snapshot", id=world.ids["first"])["parent"]
    found = view("diff-values", 400, from_=empty, to=world.ids["first"], path="air/temp")
    assert "in one of the two snapshots only" in found["message"]
    removed = view("diff-node", from_=world.ids["first"], to=empty, path="air/temp")
    assert (removed["chunks"], removed["lines"][0], removed["side"]) == (8, "--- before/zarr.json", "before")
    swapped = view("diff-values", 400, from_=world.ids["first"], to=empty, path="air/temp")
    assert "in one of the two snapshots only" in swapped["message"]


def test_storage_is_told_by_array_and_by_time(view: View, world: World) -> None:
    found = view("storage", at=world.ids["picked"])
    by_path = {each["path"]: each for each in found["arrays"]}
    assert by_path["air/temp"]["chunks"] == 12
    assert found["packed"] + found["inlined"] == sum(each["packed"] + each["inlined"] for each in found["arrays"]) > 0
    assert sum(found["sizes"]) == pytest.approx(found["packed"] + found["inlined"])
    assert len(found["sizes"]) == found["bins"]


def test_storage_is_measured_in_parts_that_add_up(world: World) -> None:
    ask, at = viewer(open_to_look(world.storage)), world.ids["rebased"]
    whole = ask("storage", at=at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_use, "_kept", {})
        patch.setattr(storage_use, "_BATCH", 1)
        parts = [ask("storage", at=at, within="0") for _ in whole["arrays"]]
    assert [each["left"] for each in parts] == list(range(len(parts) - 1, -1, -1))
    assert parts[-1] == whole
    assert parts[0]["arrays"][0]["path"] == "air/temp"


def test_objects_and_garbage_are_counted(view: View) -> None:
    kinds = {kind: number for kind, number, _ in view("objects", branch="main")["kinds"]}
    assert kinds["records"] > 0
    assert view("garbage")["dry_run"] is True


def test_conflicts_of_a_snapshot_with_a_branch_are_listed(view: View, world: World) -> None:
    found = view("conflicts", ours=world.ids["second"], onto="branch:dev")
    assert (found["rows"], found["changes"]) == ([], True)
    again = view("conflicts", ours=world.ids["dev"], onto="branch:main")
    assert (again["rows"], again["changes"]) == ([], False)


@pytest.mark.parametrize(
    ("name", "values", "status", "message"),
    [
        ("nothing", {}, 404, "no view 'nothing'"),
        ("tree", {}, 400, "'at' is missing"),
        ("tree", {"at": "branch:none"}, 404, "no branch 'none'"),
        ("tree", {"at": "0" * 20}, 404, "no snapshot"),
        ("tree", {"at": "<img>"}, 400, "is not valid"),
        ("tree", {"at": "x" * 9000}, 400, "at most 8,192"),
        ("node", {"at": "branch:main", "path": "no/where"}, 404, "no node '/no/where'"),
        ("preview", {"at": "branch:main", "path": "air"}, 404, "no array '/air'"),
        ("preview", {"at": "branch:main", "path": "air/temp", "axes": "0"}, 400, "two different axes"),
        ("preview", {"at": "branch:main", "path": "air/temp", "axes": "0,9"}, 400, "two different axes"),
        ("preview", {"at": "branch:main", "path": "air/temp", "index": "1"}, 400, "3 dimensions"),
        ("preview", {"at": "branch:main", "path": "air/temp", "index": "-1,0,0"}, 400, "integers >= 0"),
        ("preview", {"at": "branch:main", "path": "air/temp", "index": "٣,0,0"}, 400, "integers >= 0"),
        ("chunks", {"at": "branch:main", "path": "air/temp", "axes": "1,1"}, 400, "two different axes"),
        ("history", {"limit": "x"}, 400, "integers >= 0"),
        ("conflicts", {"ours": "tag:v1", "onto": "branch:none"}, 404, "no branch"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(view: View, name: str, values: dict[str, str], status: int, message: str) -> None:
    assert message in view(name, status, **values)["message"]


@pytest.fixture(scope="module")
def grown() -> tuple[View, dict[str, str]]:
    """Return the views of a cube and a line that grew, and were written anew; in between, of other arrays."""
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    ids: dict[str, str] = {}

    def write(name: str, days: int, **options: Any) -> None:
        session = repo.writable_session("main")
        shapes = {"cube": (days, 2, 2), "line": (days,)}
        for path, shape in shapes.items():
            if options.get("anew", True):
                array = zarr.create_array(
                    session.store, name=path, shape=shape, chunks=(1, *shape[1:]), dtype="f4", overwrite=True
                )
            else:
                array = zarr.open_array(session.store, path=path)
                array.resize(shape)
            for day in range(days):
                array[day] = day
        ids[name] = session.commit(name)

    write("three", 3)
    write("five", 5, anew=False)
    write("anew", 5)
    repo.wait_for_maintenance()
    return viewer(open_to_look(storage)), ids


def test_what_was_appended_is_compared_with_nothing(grown: tuple[View, dict[str, str]]) -> None:
    view, ids = grown
    places = {"from_": ids["three"], "to": ids["five"]}
    found = view("diff-values", **places, path="cube", index="4,0,0")
    assert np.isnan(found["before"]).all()
    assert (found["after"] == 4).all()
    assert (found["others"][0]["start"], found["differing"]) == (4, 4)
    back = view("diff-values", from_=ids["five"], to=ids["three"], path="cube", index="4,0,0")
    assert (back["before"] == 4).all()
    assert np.isnan(back["after"]).all()
    assert back["others"][0]["start"] == 4
    line = view("diff-values", **places, path="line")
    np.testing.assert_array_equal(line["before"], [0, 1, 2, np.nan, np.nan])
    np.testing.assert_array_equal(line["after"], [0, 1, 2, 3, 4])
    assert (line["axes"][0]["stop"], line["differing"]) == (5, 2)


def test_an_array_that_was_written_anew_is_compared_with_the_one_that_it_replaced(
    grown: tuple[View, dict[str, str]],
) -> None:
    view, ids = grown
    places = {"from_": ids["three"], "to": ids["anew"]}
    found = view("diff-values", **places, path="cube", index="2,0,0")
    assert found["differing"] == 0
    lines = view("diff-node", **places, path="cube")["lines"]
    assert [line.strip(" ,") for line in lines if line[0] in "+-"] == [
        "--- before/zarr.json", "+++ after/zarr.json", "-    3", "+    5",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def conventions() -> View:
    """Return the views of arrays as the conventions of CF allow them."""
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    session = repo.writable_session("main")

    def line(name: str, values: Any, **options: Any) -> None:
        shape, dtype = np.shape(values), options.pop("dtype", "f8")
        array = zarr.create_array(session.store, name=name, shape=shape, dtype=dtype, **options)
        array[...] = values

    line("old", [1, -99, 3], dtype="i2", zarr_format=2, fill_value=-99,
         attributes={"_ARRAY_DIMENSIONS": ["x"], "scale_factor": 0.5})  # fmt: skip
    line("plain", [1, 0, 3], dtype="i2", zarr_format=2, fill_value=0)
    line("misnamed", [[1, 2]], dtype="i2", zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["x"]})
    line("bright", [[1e44, 1e-60, 9.969209968386869e36, 0]])
    line("counts", [123456789, -3], dtype="i4")
    line("moments", [1], dtype="i8", fill_value=-(1 << 63), attributes={"seed": [(1 << 60) + 1, 7]})
    line("objects", ["a"], dtype=str, zarr_format=2)
    line("days", np.array(["2020-01-01"], "M8[D]"), dtype="M8[D]")
    line("sharded", np.zeros((8, 8)), chunks=(2, 4), shards=(4, 8))
    line("long", ["x" * 80, "x" * 81], dtype="U100")
    line("y", [9000, 8950, 8900], dtype="i2", dimension_names=["y"], attributes={"scale_factor": 0.01})
    line("northing", [4523100.5, 4523110.5], dimension_names=["northing"])
    since = {"units": "seconds since 2000-01-01"}
    line("second", [0.0, 30.0, np.nan], dimension_names=["second"], attributes=since)
    line("hour", 18262 + np.arange(3) / 24 + 1e-11, dimension_names=["hour"], attributes={
        "units": "days since 1950-01-01"})  # fmt: skip
    for name, size in (("y", 3), ("northing", 2), ("second", 3), ("hour", 3)):
        line(f"along_{name}", np.zeros(size), dimension_names=[name])
    session.commit("conventions")
    return viewer(open_to_look(storage))


def test_the_fill_value_of_zarr_2_is_a_missing_value_where_xarray_takes_it_for_one(conventions: View) -> None:
    found = conventions("preview", at="branch:main", path="old")
    np.testing.assert_array_equal(found["values"], [0.5, np.nan, 1.5])
    assert conventions("preview", at="branch:main", path="plain")["values"].tolist() == [1, 0, 3]


def test_numbers_of_any_size_are_shown(conventions: View) -> None:
    found = conventions("preview", at="branch:main", path="bright")
    np.testing.assert_array_equal(found["values"], [[1e44, 1e-60, np.nan, 0]])
    assert conventions("preview", at="branch:main", path="counts")["table"] == [["123456789", "-3"]]


def test_integers_that_a_page_would_round_are_text(conventions: View) -> None:
    found = conventions("node", at="branch:main", path="moments")
    assert (found["fill_value"], found["attributes"]) == (str(-(1 << 63)), {"seed": [str((1 << 60) + 1), 7]})


def test_parts_of_shards_and_units_of_data_types_are_told(conventions: View) -> None:
    found = conventions("node", at="branch:main", path="sharded")
    assert (found["chunks"], found["parts"], found["dtype_details"]) == ([4, 8], [2, 4], None)
    found = conventions("node", at="branch:main", path="days")
    assert (found["parts"], found["dtype_details"]) == (None, {"unit": "D", "scale_factor": 1})


def test_texts_that_are_cut_off_say_so(conventions: View) -> None:
    assert conventions("preview", at="branch:main", path="long")["table"] == [["x" * 80, "x" * 80 + "…"]]


def test_items_without_a_fixed_size_have_no_bytes(conventions: View) -> None:
    assert conventions("node", at="branch:main", path="objects")["nbytes"] is None


def test_dimensions_whose_names_do_not_fit_have_none(conventions: View) -> None:
    assert conventions("preview", at="branch:main", path="misnamed")["values"].tolist() == [[1, 2]]
    assert conventions("node", at="branch:main", path="misnamed")["dimensions"] is None


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("y", ["90", "89.5", "89"]),
        ("northing", ["4523100.5", "4523110.5"]),
        ("second", ["2000-01-01 00:00:00", "2000-01-01 00:00:30", ""]),
        ("hour", ["2000-01-01", "2000-01-01 01:00", "2000-01-01 02:00"]),
    ],
)
def test_labels_are_unpacked_and_as_fine_as_their_coordinate(conventions: View, name: str, labels: list[str]) -> None:
    assert conventions("preview", at="branch:main", path=f"along_{name}")["axes"][0]["labels"] == labels


@pytest.fixture(scope="module")
def extremes() -> tuple[View, dict[str, str]]:
    """Return the views of arrays of values that 32 or 64 bits of floating point do not tell apart, before and after."""
    storage, ids = arraystore.in_memory_storage(), {}
    repo = arraystore.Repository.create(storage)
    before: dict[str, Any] = {
        "ids": np.array([2**64 - 1, 2**53 + 1, 0], "u8"),
        "seconds": 1.7e9 + np.arange(12).reshape(3, 4) / 2,
        "infinite": np.array([[1, np.inf, np.inf], [-np.inf, np.nan, 2]]),
        "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
        "scalar": np.array(2**63 + 5, "u8"),
        "length": np.arange(1_500.0),
        "ranks": np.zeros(3),
        "kinds": np.zeros(3),
    }
    after: dict[str, Any] = {
        **before,
        "ids": np.array([2**64 - 2, 2**53, 0], "u8"),
        "infinite": np.array([[np.inf, np.inf, -np.inf], [-np.inf, np.inf, 2]]),
        "dates": np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
        "scalar": np.array(2**63 + 6, "u8"),
        "length": np.arange(2_500.0),
        "ranks": np.zeros((3, 1)),
        "kinds": np.array(["a", "b", "c"]),
    }
    for name, arrays in (("before", before), ("after", after)):
        session = repo.writable_session("main")
        for path, values in arrays.items():
            array = zarr.create_array(session.store, name=path, shape=values.shape, dtype=values.dtype, overwrite=True)
            array[...] = values
        for path, names in (("station", ["Oslo", "Røros"]), ("lag", np.array([3_600, 7_200], "m8[s]"))):
            dtype = "string" if isinstance(names, list) else names.dtype
            line = zarr.create_array(
                session.store, name=path, shape=2, dtype=dtype, dimension_names=[path], overwrite=True
            )
            line[...] = np.asarray(names, dtype=object) if isinstance(names, list) else names
            zarr.create_array(
                session.store, name=f"at_{path}", shape=2, dtype="f4", dimension_names=[path], overwrite=True
            )
        ids[name] = session.commit(name)
    return viewer(open_to_look(storage)), {"from_": ids["before"], "to": ids["after"]}


def test_tables_have_all_digits_of_integers_and_enough_of_other_numbers(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    tables = {path: ask("preview", at=sides["from_"], path=path)["table"] for path in ("ids", "scalar", "seconds")}
    assert tables["ids"] == [["18446744073709551615", "9007199254740993", "0"]]
    assert tables["scalar"] == [["9223372036854775813"]]
    assert tables["seconds"][0] == ["1700000000", "1700000000.5", "1700000001", "1700000001.5"]


def test_an_image_has_as_many_bits_as_tell_its_values_apart(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    found = ask("preview", at=sides["from_"], path="seconds")
    np.testing.assert_array_equal(found["values"], 1.7e9 + np.arange(12).reshape(3, 4) / 2)


def test_infinite_values_are_no_missing_ones(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    found = ask("preview", at=sides["from_"], path="infinite")
    assert found["table"] == [["1", "inf", "inf"], ["-inf", "", "2"]]
    assert found["summary"] == {"minimum": 1, "maximum": 2, "mean": 1.5, "missing": 1, "infinite": 3, "count": 6}
    difference = ask("diff-values", **sides, path="infinite")
    assert difference["differing"] == 3
    np.testing.assert_array_equal(difference["difference"], [[np.inf, 0, -np.inf], [0, np.nan, 0]])


def test_integers_of_64_bits_are_subtracted_exactly(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    found = ask("diff-values", **sides, path="ids")
    assert (found["difference"].tolist(), found["differing"]) == ([-1, -1, 0], 2)
    assert ask("diff-values", **sides, path="scalar")["difference"].tolist() == [1]


def test_what_is_no_number_is_compared_as_text(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    found = ask("diff-values", **sides, path="dates")
    assert found["tables"] == [[["2020-01-01", "NaT"]], [["2020-01-01", "2020-01-02"]]]
    assert (found["differing"], found["difference"]) == (1, None)


def test_a_long_array_that_has_grown_is_thinned_out_alike_in_both(extremes: tuple[View, dict[str, str]]) -> None:
    ask, sides = extremes
    found = ask("diff-values", **sides, path="length")
    assert found["axes"][0]["step"] == 2
    assert np.isnan(found["before"]).tolist() == [False] * 750 + [True] * 500
    assert np.nansum(np.abs(found["difference"])) == 0


def test_a_comparison_begins_at_an_item_that_differs() -> None:
    storage, ids = arraystore.in_memory_storage(), {}
    session = arraystore.Repository.create(storage).writable_session("main")
    for name, dtype in (("part", "f4"), ("grown", "f4"), ("words", "U4"), ("large", "f8")):
        size = 1 << 20 if name == "large" else 6
        array = zarr.create_array(session.store, name=name, shape=(24, size), chunks=(12, size), dtype=dtype)
        array[...] = "old" if name == "words" else np.nan
    ids["from_"] = session.commit("before")
    session = arraystore.Repository.open(storage).writable_session("main")
    for name, value in (("part", 1), ("words", "new"), ("large", 1)):
        zarr.open_array(session.store, path=name)[:15, 2] = value
    array = zarr.open_array(session.store, path="grown")
    array.resize((25, 6))
    array[24] = 1
    ids["to"] = session.commit("after")
    ask = viewer(open_to_look(storage))
    places = {name: ask("diff-node", **ids, path=name)["index"] for name in ("part", "grown", "words", "large")}
    assert places == {"part": [14, 2], "grown": [24, 5], "words": [14, 2], "large": [23, (1 << 20) - 1]}


def test_items_that_differ_are_counted_also_where_they_are_not_drawn() -> None:
    storage, ids = arraystore.in_memory_storage(), {}
    session = arraystore.Repository.create(storage).writable_session("main")
    for name, fill in (("plain", 1.0), ("missing", np.nan)):
        array = zarr.create_array(session.store, name=name, shape=(900, 1_000), chunks=(300, 500), dtype="f4")
        array[...] = fill
    ids["from_"] = session.commit("before")
    session = arraystore.Repository.open(storage).writable_session("main")
    zarr.open_array(session.store, path="plain")[1, 1] = 5
    array = zarr.open_array(session.store, path="missing")
    array.resize((1_100, 1_000))
    array[901, 1:3] = 7
    ids["to"] = session.commit("after")
    ask = viewer(open_to_look(storage))
    found = ask("diff-values", **ids, path="plain")
    assert (found["axes"][0]["step"], found["differing"]) == (3, 1)
    assert not found["difference"].any()
    grown = zarr.open_array(arraystore.Repository.open(storage).readonly_session("main").store, path="missing")
    assert ask("diff-values", **ids, path="missing")["differing"] == int((~np.isnan(grown[...])).sum())


@pytest.mark.parametrize(
    ("path", "message"), [("ranks", "1 dimensions before and 2 after"), ("kinds", "numbers in one of the two")]
)
def test_what_cannot_be_subtracted_is_said(extremes: tuple[View, dict[str, str]], path: str, message: str) -> None:
    ask, sides = extremes
    assert message in ask("diff-values", 400, **sides, path=path)["message"]


@pytest.mark.parametrize(("path", "labels"), [("at_station", ["Oslo", "Røros"]), ("at_lag", ["1 h", "2 h"])])
def test_names_and_spans_of_time_are_labels(
    extremes: tuple[View, dict[str, str]], path: str, labels: list[str]
) -> None:
    ask, sides = extremes
    assert ask("preview", at=sides["to"], path=path)["axes"][0]["labels"] == labels
