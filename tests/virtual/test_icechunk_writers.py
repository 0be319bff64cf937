"""VirtualiZarr's own writer for Icechunk, on a store of the compatibility layer."""

from __future__ import annotations

import subprocess
import sys

import pytest
import xarray as xr

import arraystore.compat.icechunk as icechunk  # noqa: PLR0402 - as the docs say
from arraystore import VirtualChunkContainer
from arraystore.virtual import open_virtual_file
from tests.virtual.conftest import Files


@pytest.fixture
def repo(hdf5_files: Files) -> icechunk.Repository:
    config = icechunk.RepositoryConfig.default()
    prefix = hdf5_files.prefix
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(prefix.removeprefix("file://")))
    )
    access = icechunk.containers_credentials({prefix: icechunk.credentials.LocalFileSystemAccess})
    return icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)


def test_a_virtual_dataset_is_written_and_appended_to(repo: icechunk.Repository, hdf5_files: Files) -> None:
    container = VirtualChunkContainer(hdf5_files.prefix)
    for number, path in enumerate(hdf5_files.paths[:2]):
        vds = open_virtual_file(path, container).drop_vars("height")  # which it takes for changed when it appends
        session = repo.writable_session("main")
        vds.vz.to_icechunk(session.store, **({"append_dim": "time"} if number else {}))
        session.commit(f"file {number}")
    shown = xr.open_zarr(repo.readonly_session("main").store, consolidated=False).load()
    xr.testing.assert_allclose(shown, hdf5_files.dataset(0, 1).drop_vars("height"))


_WITHOUT_UPSTREAM = """
import sys
import arraystore.compat.icechunk as icechunk
sys.modules["icechunk"] = icechunk
import numpy, virtualizarr, xarray
from arraystore import VirtualChunkContainer
from arraystore.virtual import open_virtual_file
prefix, path = sys.argv[1:]
config = icechunk.RepositoryConfig.default()
store = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
session = icechunk.Repository.create(icechunk.in_memory_storage(), config).writable_session("main")
open_virtual_file(path, VirtualChunkContainer(prefix)).vz.to_icechunk(session.store)
print(len(session.all_virtual_chunk_locations()) > 0, "icechunk._icechunk_python" in sys.modules)
"""


def test_it_writes_where_the_layer_stands_for_icechunk(hdf5_files: Files) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _WITHOUT_UPSTREAM, hdf5_files.prefix, hdf5_files.paths[0]]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["True", "False"]
