"""Chunks of packs on a local disk, which a verification reads piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from arraystore import Repository, local_filesystem_storage

SMALL, LARGE = 1 << 14, 3 << 20
"""Bytes of chunks: many that are read as one piece, and one that takes several."""


def _repository(root: Path, cells: int, count: int) -> Repository:
    """Return a repository with an array of chunks that do not compress."""
    repository = Repository.create(local_filesystem_storage(root, fsync=False))
    session = repository.writable_session("main")
    values = np.random.default_rng(0).integers(0, 256, (count, cells), dtype="u1")
    zarr.create_array(session.store, name="a", data=values, chunks=(1, cells), compressors=None)
    session.commit("chunks")
    return repository


def _packs(root: Path) -> list[Path]:
    return sorted(path for path in (root / "chunks").rglob("*") if path.is_file())


@pytest.mark.parametrize(("cells", "count"), [(SMALL, 200), (LARGE, 2)])
def test_sound_chunks_are_counted_with_their_checksums(tmp_path: Path, cells: int, count: int) -> None:
    report = _repository(tmp_path, cells, count).verify("chunks")
    assert report.ok
    assert report.counts["chunks_read"] == count
    assert report.counts["bytes_read"] == count * (cells + 4)


@pytest.mark.parametrize(("cells", "count"), [(SMALL, 200), (LARGE, 2)])
@pytest.mark.parametrize("part", [0.0, 0.412, 0.613, 0.9991])
def test_a_flipped_bit_is_found_in_whichever_piece_it_is(tmp_path: Path, cells: int, count: int, part: float) -> None:
    repository = _repository(tmp_path, cells, count)
    pack = _packs(tmp_path)[0]
    data = bytearray(pack.read_bytes())
    data[int(part * (len(data) - 8))] ^= 4
    pack.chmod(0o600)
    pack.write_bytes(data)
    report = repository.verify("chunks")
    (error,) = report.errors
    assert error.key.endswith(pack.name)
    assert "checksum" in error.problem
    assert report.counts["chunks_read"] == count


def test_a_pack_that_was_cut_off_is_found(tmp_path: Path) -> None:
    repository = _repository(tmp_path, LARGE, 2)
    pack = _packs(tmp_path)[-1]
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[: -(1 << 20)])
    assert any(error.key.endswith(pack.name) for error in repository.verify("chunks").errors)
