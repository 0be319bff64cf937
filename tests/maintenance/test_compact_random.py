"""Random programs of writes, deletions, resizes and compactions, with limits so low that every path is taken."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from arraystore._format.references import to_manifests
from arraystore._maintenance import full_fold, retained, selection
from tests.maintenance.worlds import CHUNK, COLUMNS, LITTLE_PACKS, ROWS, World, array, create, layer_counts, with_rows
from tests.tiers import mostly_thorough


def _step(world: World, random: np.random.Generator) -> None:
    kind = int(random.integers(5))
    row, stop = sorted(random.integers(0, ROWS + 1, 2).tolist())
    column = int(random.integers(COLUMNS)) * CHUNK

    def change(group: zarr.Group, values: np.random.Generator) -> None:
        found = array(group, "a")
        height = found.shape[0]
        if kind == 0:
            found.resize((max(1, row), COLUMNS * CHUNK))
            found.resize((height, COLUMNS * CHUNK))
        elif kind == 1:
            found[row:stop, column : column + CHUNK] = -1  # the fill value: such chunks are deleted
        else:
            found[row:stop, column:] = values.random(np.shape(found[row:stop, column:]))
        group.attrs["step"] = world.seed

    world.write(change)


@pytest.mark.parametrize("seed", mostly_thorough(range(4), every=2))
def test_random_programs_read_the_same_after_compactions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    low = bool(seed % 2)
    if low:
        monkeypatch.setattr(full_fold, "_AT_ONCE", 32)
        monkeypatch.setattr(full_fold, "_IN_WINDOW", 96)
        monkeypatch.setattr(full_fold, "to_manifests", lambda references: to_manifests(references, 16))
        monkeypatch.setattr(retained, "_RECORDS_AT_ONCE", 3)
        monkeypatch.setattr(retained, "_ROWS_AT_ONCE", 10)
    monkeypatch.setattr(selection, "_SMALL", 2)
    world = create(config=LITTLE_PACKS)
    for _ in range(4):
        for _ in range(int(random.integers(1, 6))):
            _step(world, random)
        budget = None if random.integers(2) else int(random.integers(200_000))
        world.repository.compact(max_bytes=budget, min_live=float(random.random()))
        world.check([])
    assert world.repository.compact().complete
    if not low:
        assert len(layer_counts(world.storage)) <= 1
    world.check(list(world.held))


def test_a_deletion_of_what_an_older_run_of_layers_holds_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_rows(rows=24)

    def delete(group: zarr.Group, _: np.random.Generator) -> None:
        array(group, "a")[2:6] = -1

    world.write(delete)
    world.write_row(30)
    monkeypatch.setattr(full_fold, "_IN_WINDOW", 64)
    assert world.repository.compact().complete
    assert layer_counts(world.storage) == [64, 64, 64, 40]
    world.check()
    assert world.repository.compact().arrays_folded == 0
