"""Pictures: cells and counts of chunk maps, rows of histories and differences, hostile names, and the extra."""

from __future__ import annotations

import re
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import zarr

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from arraystore import CountingStorage, Diff, Repository, in_memory_storage
from arraystore._history.plotting.chunk_picture import count_along, make_picture
from arraystore._history.plotting.difference import changed_nodes
from arraystore._runtime import extras
from arraystore.errors import InvalidInputError, NodeNotFoundError

HOSTILE = "$\\frac{$ <b>_{^\u202e\x1b[31m"


def drawn(ax: Axes) -> list[str]:
    """Draw the figure, and return the texts of the axes."""
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    legend = ax.get_legend()
    texts = [*ax.texts, *ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
    texts += [] if legend is None else legend.get_texts()
    return [ax.get_title(loc="left"), *[text.get_text() for text in texts]]


def repository() -> Repository:
    """Return a repository with an array of 4 × 3 chunks of 2 × 2 cells, of which 6 are there."""
    repo = Repository.create(CountingStorage(in_memory_storage()))
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="air/temp", shape=(8, 6), chunks=(2, 2), dtype="f8", dimension_names=("time", "x")
    )
    array[:4] = 1
    session.commit("First values")
    return repo


# -- pictures of grids --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "axes", "cells"),
    [
        ((), None, (1, 1)),
        ((7,), None, (1, 7)),
        ((1, 7, 1), None, (1, 7)),
        ((300,), None, (10, 30)),
        ((3, 5), None, (3, 5)),
        ((3, 2, 5), None, (3, 5)),
        ((3, 2, 5), (2, 1), (5, 2)),
        ((0, 5), None, (1, 5)),
        ((0,), None, (1, 1)),
        ((1000, 513), None, (250, 171)),
        ((10**15,), None, (148, 444)),
        ((10**9, 10**9, 10**9), None, (256, 256)),
    ],
)
def test_every_chunk_of_a_grid_of_any_rank_and_size_has_one_place(
    grid: tuple[int, ...], axes: tuple[int, ...] | None, cells: tuple[int, int]
) -> None:
    picture = make_picture(grid, axes)
    assert (picture.rows, picture.columns) == cells
    assert picture.capacity.sum() == pytest.approx(np.prod(np.array(grid, dtype=float)))
    if np.prod(np.array(grid, dtype=float)) <= 10**6:
        coords = np.argwhere(np.ones(grid, dtype=bool))
        assert np.array_equal(picture.count(coords), picture.capacity)
    last = np.array([grid], dtype=np.int64) - 1
    if (last >= 0).all():
        assert picture.count(last).sum() == 1
    assert picture.count(last + 1).sum() == (1 if grid == () else 0)


def test_chunks_are_counted_along_a_grid_in_row_major_order() -> None:
    coords = np.array([[0, 0], [0, 1], [2, 3]])
    counts, places = count_along((3, 4), coords, 6)
    assert counts.tolist() == [2, 0, 0, 0, 0, 1]
    assert places.tolist() == [2] * 6
    assert [len(column) for column in count_along((), np.zeros((1, 0), np.int64), 6)] == [1, 1]
    assert count_along((10**18, 10**18), np.array([[10**18 - 1, 0]]), 4)[0].tolist() == [0, 0, 0, 1]


# -- chunk maps ---------------------------------------------------------------------------------------------


def test_a_chunk_map_counts_what_is_committed_what_is_not_and_what_is_missing() -> None:
    session = repository().writable_session("main")
    zarr.open_array(session.store, path="air/temp")[2:6, :4] = 2
    ax = session.plot_chunks("/air/temp/")
    texts = drawn(ax)
    assert texts[0] == "/air/temp: 4 × 3 chunks"
    assert {"in manifests (4)", "uncommitted (4)", "no chunk (4)", "chunk along time", "chunk along x"} <= {*texts}
    image = ax.images[0].get_array()
    assert image is not None
    assert image.shape == (4, 3, 4)
    assert (image[0] == image[1, 2]).all()
    assert (image[1, :2] == image[2, 0]).all()
    assert not (image[0, 0] == image[1, 0]).all()
    assert (image[3] == image[2, 2]).all()


def test_dimensions_are_chosen_by_name_or_position_and_others_are_summed_up() -> None:
    session = repository().readonly_session("main")
    texts = drawn(session.plot_chunks("air/temp", dims=["x"]))
    assert texts[0] == "/air/temp: 4 × 3 chunks\nsummed up along time"
    assert "chunk along time" in drawn(session.plot_chunks("air/temp", dims=("x", 0)))
    for dims in (["y"], [2], [-3], [True], ["x", 1], ["x", "time", "x"]):
        with pytest.raises(InvalidInputError, match="dim"):
            session.plot_chunks("air/temp", dims=dims)  # type: ignore[arg-type]


def test_a_title_names_only_the_first_of_many_dimensions() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,) * 20, chunks=(1,) * 20, dtype="i1")
    title = drawn(session.plot_chunks("a"))[0]
    assert title == f"/a: {' × '.join('2' * 8)} × … chunks\nsummed up along axis 2, axis 3, axis 4 and 15 more"


def test_a_picture_is_drawn_on_the_axes_of_the_caller() -> None:
    _, (left, right) = plt.subplots(1, 2)
    repo = repository()
    session = repo.writable_session("main")
    assert session.plot_chunks("air/temp", ax=left) is left
    assert repo.plot_history(ax=right) is right
    assert session.status().plot(ax=left) is left
    assert plt.get_fignums() == [1]


def test_arrays_of_no_dimension_and_of_no_chunk_are_drawn() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="scalar", shape=(), dtype="i4")[...] = 1
    zarr.create_array(session.store, name="empty", shape=(0, 4), chunks=(1, 2), dtype="i4")
    zarr.create_array(session.store, name="line", shape=(200,), chunks=(1,), dtype="i4")[:3] = 1
    assert "uncommitted (1)" in drawn(session.plot_chunks("scalar"))
    assert drawn(session.plot_chunks("empty"))[0] == "/empty: 0 × 2 chunks"
    assert "chunks along axis 0, 25 chunks to a row" in drawn(session.plot_chunks("line"))
    for path in ("nothing", ""):
        with pytest.raises(NodeNotFoundError, match=f"there is no array '{path}' in snapshot"):
            session.plot_chunks(path)


def test_a_serializable_session_does_not_take_a_picture_for_a_read() -> None:
    session = repository().writable_session("main", isolation="serializable")
    session.plot_chunks("air/temp")
    assert session.reads == repository().writable_session("main", isolation="serializable").reads


# -- histories ----------------------------------------------------------------------------------------------


def test_a_history_is_drawn_with_names_times_and_messages() -> None:
    repo = repository()
    repo.create_branch("dev", repo.lookup_branch("main"))
    repo.create_tag("v1", repo.lookup_branch("main"))
    for branch in ("main", "dev"):
        repo.writable_session(branch).commit(f"On {branch}", allow_empty=True)
    texts = drawn(repo.plot_history())
    assert {"main", "dev", "tag: v1", "On main", "On dev", "First values"} <= {*texts}
    assert sum(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", text) is not None for text in texts) == 4
    assert "On dev" not in drawn(repo.plot_history(branch="main"))


def test_a_long_history_is_bounded_in_requests_rows_and_captions() -> None:
    repo = repository()
    for number in range(150):
        repo.writable_session("main").commit(f"commit {number}", allow_empty=True)
    ax = repo.plot_history(limit=100)
    assert len(ax.collections[1].get_offsets()) == 100
    texts = drawn(ax)
    assert {"main", "commit 149", "older snapshots are not drawn"} <= {*texts}
    assert sum(text.startswith("commit") for text in texts) == 50
    for limit in (0, -1, True, 10_001, 5.0):
        with pytest.raises(InvalidInputError, match="must be an integer from 1 to 10,000"):
            repo.plot_history(limit=limit)  # type: ignore[arg-type]


# -- differences --------------------------------------------------------------------------------------------


def test_a_difference_is_drawn_with_a_row_for_each_node() -> None:
    session = repository().writable_session("main")
    zarr.open_array(session.store, path="air/temp")[4:6] = 3
    zarr.create_array(session.store, name="new", shape=4, chunks=1, dtype="i4")[1:] = 1
    zarr.create_group(session.store, path="group")
    diff = session.status()
    ax = diff.plot()
    texts = drawn(ax)
    assert texts[0] == "3 changed nodes"
    assert {"/air/temp", "/new", "/group", "3 of 12 chunks", "3 of 4 chunks", "new group"} <= {*texts}
    strip = ax.images[1].get_array()
    assert strip is not None
    assert [bool((strip[0, at] == strip[0, 0]).all()) for at in range(4)] == [True, False, False, False]
    texts = drawn(diff.plot("air/temp"))
    assert {"changed (3)", "unchanged (9)"} <= {*texts}
    assert "new (3)" in drawn(diff.plot("/new"))
    with pytest.raises(NodeNotFoundError, match="no chunk of an array 'group' changed"):
        diff.plot("group")


def test_a_difference_of_snapshots_knows_the_grids_before_and_after() -> None:
    repo = repository()
    before = repo.lookup_branch("main")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="air/temp").resize((2, 6))
    session.commit("Shrink")
    diff = repo.diff(from_snapshot_id=before, to_branch="main")
    assert diff.chunk_grids == {"/air/temp": (1, 3)}
    assert "3 of 6 chunks" in drawn(diff.plot())
    assert drawn(diff.plot("air/temp"))[0] == "/air/temp: 2 × 3 chunks"


def test_differences_without_grids_are_equal_and_are_drawn() -> None:
    coords = np.array([[1, 2]])
    made = Diff(updated_chunks={"/a": coords})
    assert made == Diff(updated_chunks={"/a": coords}, chunk_grids={"/a": (9, 9)})
    assert "1 of 6 chunks" in drawn(made.plot())
    assert drawn(Diff().plot())[0] == "no changes"


def test_of_many_changed_nodes_the_first_are_drawn() -> None:
    diff = Diff(new_arrays={f"/a{number:04}" for number in range(5_000)}, moved_nodes={"/old": "/new"})
    assert drawn(diff.plot())[0] == "5,001 changed nodes, the first 40 of them"
    moved = changed_nodes({}, {"/old": "/new"}, {}, {})
    assert [(node.path, node.change, node.note) for node in moved] == [("/new", "moved", "from /old")]


# -- names, and the extra -----------------------------------------------------------------------------------


def test_hostile_names_and_messages_are_drawn_as_they_are() -> None:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    name = HOSTILE.replace("\\", "")
    array = zarr.create_array(
        session.store, name=name, shape=(4, 4), chunks=(2, 2), dtype="i4", dimension_names=("$a_{", HOSTILE)
    )
    array[:] = 1
    texts = [drawn(session.plot_chunks(name)), drawn(session.status().plot()), drawn(session.status().plot(name))]
    session.commit(HOSTILE * 50)
    texts.append(drawn(repo.plot_history()))
    for each in texts:
        joined = "".join(each)
        assert "frac{$ <b>" in joined
        assert not re.search("[\u202e\x1b]", joined)
        assert len(joined) < 1000


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    repo = repository()
    session = repo.readonly_session("main")
    drawings: dict[str, Any] = {
        "Session.plot_chunks": lambda: session.plot_chunks("air/temp"),
        "Repository.plot_history": repo.plot_history,
        "Diff.plot": Diff().plot,
    }
    for name, draw in drawings.items():
        with pytest.raises(ModuleNotFoundError, match=rf"{name} needs .* pip install 'arraystore\[plot\]'") as caught:
            draw()
        assert caught.value.name == "matplotlib"
