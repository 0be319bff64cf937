"""Datasets of VirtualiZarr in a repository: they show what the files show, and refer to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.manifests.utils import create_v3_array_metadata

import arraystore as ars
from arraystore.virtual import VirtualizeError, open_virtual_file, write_virtual_dataset
from tests.virtual.conftest import Files, shown

PREFIX = "s3://bucket/model/"


def joined(files: Files, *which: int) -> xr.Dataset:
    datasets = [open_virtual_file(files.paths[number]) for number in which]
    return xr.concat(
        datasets, dim="time", data_vars="minimal", coords="minimal", compat="override", join="override",
        combine_attrs="override",
    )  # fmt: skip


def test_a_dataset_shows_what_its_files_show_after_commits_and_appends(files: Files) -> None:
    repo = files.repository()
    with repo.transaction("main", message="two files") as store:
        write_virtual_dataset(joined(files, 0, 1), store.session, group="a/b")
    xr.testing.assert_identical(shown(repo, "a/b"), files.dataset(0, 1))
    with repo.transaction("main", message="the third") as store:
        write_virtual_dataset(joined(files, 2), store.session, group="a/b", append_dim="time")
    xr.testing.assert_identical(shown(repo, "a/b"), files.dataset())
    assert repo.chunk_storage_stats().virtual_bytes > 0


def test_a_tree_is_written_group_by_group(hdf5_files: Files) -> None:
    repo = hdf5_files.repository()
    tree = xr.DataTree.from_dict({"/first": joined(hdf5_files, 0), "/later": joined(hdf5_files, 1)})
    with repo.transaction("main", message="tree") as store:
        write_virtual_dataset(tree, store.session, group="top")
    xr.testing.assert_identical(shown(repo, "top/first"), hdf5_files.dataset(0))
    xr.testing.assert_identical(shown(repo, "top/later"), hdf5_files.dataset(1))


def test_appends_of_two_sessions_are_both_committed(hdf5_files: Files) -> None:
    repo = hdf5_files.repository()
    with repo.transaction("main", message="one") as store:
        write_virtual_dataset(joined(hdf5_files, 0), store.session, append_dim="time")
    sessions = [repo.writable_session("main") for _ in range(2)]
    for number, session in enumerate(sessions, start=1):
        write_virtual_dataset(joined(hdf5_files, number), session, append_dim="time")
    for session in sessions:
        session.commit("append", rebase_with=ars.ConflictDetector())
    xr.testing.assert_identical(shown(repo), hdf5_files.dataset())


def test_what_exists_is_not_replaced_and_nothing_is_written(hdf5_files: Files) -> None:
    repo = hdf5_files.repository()
    session = repo.writable_session("main")
    write_virtual_dataset(joined(hdf5_files, 0), session)
    before = session.status()
    with pytest.raises(ars.AlreadyExistsError, match="pass append_dim"):
        write_virtual_dataset(joined(hdf5_files, 1), session)
    assert session.status() == before


def changed_units(vds: xr.Dataset) -> None:
    vds.rain.attrs["scale_factor"] = 0.25


def changed_codecs(vds: xr.Dataset) -> None:
    data = vds.rain.data
    metadata = replace(data.metadata, codecs=create_v3_array_metadata((1,), np.dtype("i2"), (1,)).codecs)
    vds["rain"] = (vds.rain.dims, ManifestArray(metadata, data.manifest), vds.rain.attrs)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(changed_units, "differs in scale_factor"), (changed_codecs, "differs in codecs")],
)
def test_what_would_be_decoded_otherwise_is_not_appended(hdf5_files: Files, change: Any, reason: str) -> None:
    repo = hdf5_files.repository()
    with repo.transaction("main", message="one") as store:
        write_virtual_dataset(joined(hdf5_files, 0), store.session)
    vds = joined(hdf5_files, 1)
    change(vds)
    session = repo.writable_session("main")
    with pytest.raises(VirtualizeError, match=reason):
        write_virtual_dataset(vds, session, append_dim="time")
    assert not session.has_uncommitted_changes


def test_an_append_that_fails_half_way_leaves_the_session_as_it_was(hdf5_files: Files) -> None:
    repo = hdf5_files.repository()
    session = repo.writable_session("main")
    write_virtual_dataset(joined(hdf5_files, 0), session)
    write_virtual_dataset(joined(hdf5_files, 1), session, append_dim="time")
    vds = joined(hdf5_files, 2)
    data = vds.rain.data
    elsewhere = data.manifest.rename_paths(lambda path: path.replace("hdf5", "elsewhere"))
    with pytest.raises(ars.VirtualReferenceError, match="none of the containers"):
        write_virtual_dataset(
            vds.assign(rain=(vds.rain.dims, ManifestArray(data.metadata, elsewhere), vds.rain.attrs)),
            session,
            append_dim="time",
        )
    xr.testing.assert_identical(xr.open_dataset(session, engine="arraystore"), hdf5_files.dataset(0, 1))  # type: ignore[arg-type]
    write_virtual_dataset(vds, session, append_dim="time")
    session.commit("all")
    xr.testing.assert_identical(shown(repo), hdf5_files.dataset())


def references(count: int, side: int, **metadata: Any) -> xr.Dataset:
    """Return a dataset of references to `side` chunks of each of so many files."""
    urls = np.array([f"{PREFIX}{number:05}.nc" for number in range(count)], dtype=np.dtypes.StringDType())
    shape = (count, side)
    offsets = np.broadcast_to(1000 + 5000 * np.arange(side), shape).astype("u8")
    manifest = ChunkManifest.from_arrays(
        paths=np.repeat(urls, side).reshape(shape), offsets=offsets, lengths=np.full(shape, 5000, "u8"),
        validate_paths=False,
    )  # fmt: skip
    described = create_v3_array_metadata(
        shape=(count, 10 * side), data_type=np.dtype("f4"), chunk_shape=(1, 10), fill_value=0.0, **metadata
    )
    return xr.Dataset({"rain": (("time", "x"), ManifestArray(described, manifest))})


def test_a_reference_takes_at_most_four_bytes() -> None:
    storage = ars.CountingStorage(ars.in_memory_storage())
    repo = ars.Repository.create(storage, authorize_virtual_chunk_access={PREFIX: ars.in_memory_storage()})
    with repo.transaction("main", message="many") as store:
        write_virtual_dataset(references(100, 1000), store.session, checksum=None)
    assert repo.readonly_session("main").chunk_coordinates("rain").shape == (100_000, 2)
    assert 0 < storage.counts.bytes_written <= 4 * 100_000


def test_an_append_that_would_join_chunks_is_refused() -> None:
    repo = ars.Repository.create(
        ars.in_memory_storage(), authorize_virtual_chunk_access={PREFIX: ars.in_memory_storage()}
    )
    vds = references(2, 3)
    data = vds.rain.data
    vds["rain"] = (("time", "x"), ManifestArray(replace(data.metadata, shape=(2, 25)), data.manifest))
    with repo.transaction("main", message="one") as store:
        write_virtual_dataset(vds, store.session, checksum=None)
    with pytest.raises(VirtualizeError, match="no multiple of 10"):
        write_virtual_dataset(vds, repo.writable_session("main"), append_dim="x", checksum=None)


def test_files_outside_of_containers_are_refused(hdf5_files: Files) -> None:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    with pytest.raises(ars.VirtualReferenceError, match="authorize_virtual_chunk_access"):
        write_virtual_dataset(joined(hdf5_files, 0), session)
    tree = xr.DataTree.from_dict({"/a": xr.Dataset({"v": ("x", [1, 2])}), "/b": joined(hdf5_files, 0)})
    with pytest.raises(ars.VirtualReferenceError, match="authorize_virtual_chunk_access"):
        write_virtual_dataset(tree, session, group="top")
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"append_dim": "height"}, "no dimension 'height'"),
        ({"append_dim": "t", "vds": xr.DataTree()}, "does not go with a tree"),
        ({"vds": 3}, "must be an xarray.Dataset"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(hdf5_files: Files, arguments: dict[str, Any], reason: str) -> None:
    session = hdf5_files.repository().writable_session("main")
    with pytest.raises(ars.InvalidInputError, match=reason):
        write_virtual_dataset(**({"vds": joined(hdf5_files, 0)} | arguments), session=session)
