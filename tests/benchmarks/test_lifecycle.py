"""The repositories that the lifecycle is measured on are what they are said to be."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

import arraystore
from arraystore.storage import Storage
from arraystore.storage.protocol import ObjectInfo
from benchmarks.cases import lifecycle
from benchmarks.collecting import collect
from benchmarks.contenders import OURS
from benchmarks.forged import PACKED, ListedPacks, forge
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import CaseResult
from benchmarks.setup import Setup


async def _list(storage: Storage, start_after: str = "") -> list[ObjectInfo]:
    return [info async for page in storage.list("chunks/", start_after) for info in page]


@pytest.mark.parametrize("per_pack", [1, 100])
def test_a_forged_repository_is_sound_and_all_of_it_is_needed(per_pack: int, tmp_path: Path) -> None:
    place = Place("local", path=tmp_path)
    ids = forge(place, arrays=2, references=1050, per_pack=per_pack)
    repository = arraystore.Repository.open(OURS.storage(place))
    assert repository.verify().ok
    files = sorted((tmp_path / "chunks").iterdir())
    assert len(files) == len(ids) // 12 == 2 * -(-1050 // per_pack)
    summary = repository.garbage_collect(dt.datetime.now(dt.UTC), full=True)
    assert summary.full
    assert not summary.objects_deleted
    files[0].unlink()
    assert not arraystore.Repository.open(OURS.storage(place)).verify().ok


def test_packs_that_are_only_listed_are_listed_as_those_that_are_there(tmp_path: Path) -> None:
    place = Place("local", path=tmp_path)
    ids = forge(place, arrays=2, references=1050, per_pack=1)
    there = asyncio.run(_list(storage := OURS.storage(place)))
    listed = ListedPacks(storage, ids, PACKED)
    assert [(info.key, info.size) for info in asyncio.run(_list(listed))] == [(i.key, i.size) for i in there]
    rest = asyncio.run(_list(listed, there[1500].key))
    assert [info.key for info in rest] == [info.key for info in there[1501:]]


def test_a_collection_of_listed_packs_looks_at_them(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    directory.mkdir()
    place = Place("local", path=directory)
    ids = forge(place, arrays=1, references=1050, per_pack=1, files=False)
    file = tmp_path / "ids"
    file.write_bytes(ids)
    assert set(collect(directory, file)) == {"bytes", "seconds", "requests"}
    file.write_bytes((int.from_bytes(ids[:12], "big") - 1).to_bytes(12, "big") + ids)
    with pytest.raises(AssertionError, match="deleted what is needed"):
        collect(directory, file)


def test_the_case_runs_on_tiny_loads_and_takes_nothing_that_is_kept(tmp_path: Path) -> None:
    places = {"here": PlaceMaker("local", tmp_path)}
    setup = Setup(1, True, OURS, OURS, tmp_path, places)
    result: CaseResult = lifecycle.run(setup)
    assert [table.title.split(",")[0].split(" of ")[0] for table in result.tables] == [
        "collection",
        "Collections with nothing to do",
        "A full collection",
        "Looking at history",
    ]
    assert list(tmp_path.iterdir()) == [], "a case clears away what it wrote"
