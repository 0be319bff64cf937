"""Damage of every kind of object is found, named, and traced to the snapshots that it affects."""

from __future__ import annotations

from functools import cache

import pytest

from arraystore import Repository
from arraystore._maintenance.verification.findings import Severity
from tests.commit.support import keys, objects, put
from tests.keys import record, refs_of
from tests.maintenance.verification.support import (
    Damage,
    about,
    contents,
    copied,
    damage,
    empty,
    flipped,
    long_repository,
    missing,
    small_repository,
    swapped,
    truncated,
    verified,
)
from tests.seams import context_of

EVERY = [missing, truncated, empty, flipped, swapped]


@cache
def _small() -> Repository:
    return small_repository()


@cache
def _long() -> Repository:
    return long_repository(135)


@cache
def _known() -> dict[str, dict[str, bytes] | None]:
    return contents(_small())


def _damaged(repository: Repository, key: str, how: Damage) -> Repository:
    storage = copied(repository.storage)
    damage(storage, key, how)
    return Repository.open(storage)


def _affected(repository: Repository) -> set[str]:
    """Return the snapshots that read otherwise than before the damage."""
    found = contents(repository)
    return {snapshot for snapshot, content in _known().items() if found.get(snapshot) != content}


@pytest.mark.parametrize("level", ["metadata", "chunks"])
def test_a_repository_without_damage_has_no_findings(level: str) -> None:
    for repository in (_small(), _long()):
        report = verified(repository, level)
        assert report.findings == ()
        assert (report.ok, report.exit_code) == (True, 0)
        assert all(leak.objects == 0 for leak in report.leaks.values()), report.leaks


@pytest.mark.parametrize("how", [missing, truncated, empty])
def test_packs_that_are_missing_or_too_short_are_found_without_reading_any(how: Damage) -> None:
    for key in keys(_small().storage, "chunks/"):
        repository = _damaged(_small(), key, how)
        report = verified(repository)
        (finding,) = report.findings
        assert (finding.key, finding.severity) == (key, Severity.ERROR)
        # Snapshots in which all of its chunks were overwritten have the layer, too.
        assert set(finding.snapshots) >= _affected(repository) > set()
        assert finding.snapshots[0] == min(_affected(repository))
        assert report.exit_code == 4


def test_packs_with_a_flipped_bit_are_found_by_decoding_their_chunks() -> None:
    for key in keys(_small().storage, "chunks/"):
        repository = _damaged(_small(), key, flipped)
        assert verified(repository).ok
        findings = verified(repository, "chunks").findings
        assert {finding.key for finding in findings} == {key}
        named = {snapshot for finding in findings for snapshot in finding.snapshots}
        assert named >= _affected(repository) > set()


def test_a_pack_with_the_bytes_of_another_array_s_is_found_by_decoding_its_chunks() -> None:
    packs = {info.key: info.size for info in objects(_small().storage, "chunks/")}
    smallest, largest = min(packs, key=packs.__getitem__), max(packs, key=packs.__getitem__)
    assert packs[smallest] < packs[largest]
    storage = copied(_small().storage)
    put(storage, smallest, bytes(storage.get_sync(largest)))
    assert {finding.key for finding in verified(Repository.open(storage), "chunks").findings} == {smallest}


@pytest.mark.parametrize("how", EVERY)
def test_damaged_manifests_are_found_with_the_snapshots_and_arrays_that_have_them(how: Damage) -> None:
    for key in keys(_long().storage, "manifests/"):
        report = verified(_damaged(_long(), key, how))
        assert [finding.key for finding in report.errors] == [key]
        assert report.errors[0].snapshot_count > 0
        assert report.errors[0].array_count == 1


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("number", [0, 1, 2, 5, 7])
def test_damaged_records_are_found(number: int, how: Damage) -> None:
    key = record(_small().storage, number)
    report = verified(_damaged(_small(), key, how))
    if (number, how) == (7, missing):
        assert report.leaks["packs"].objects  # nobody can tell that there was a newer record, but what it left is seen
        return
    (finding,) = about(report, key)[:1]
    assert finding.severity == Severity.ERROR
    assert not report.ok


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("number", [8, 63, 64, 100, 128, 138])
def test_damaged_records_of_a_longer_log_are_found(number: int, how: Damage) -> None:
    key = record(_long().storage, number)
    report = verified(_damaged(_long(), key, how))
    assert about(report, key)
    assert not report.ok


@pytest.mark.parametrize("how", EVERY)
def test_damaged_checkpoints_are_found(how: Damage) -> None:
    for key in keys(_long().storage, "snapshots/"):
        report = verified(_damaged(_long(), key, how))
        findings = about(report, key) or [f for f in report.findings if key[-20:] in f.problem]
        assert findings, key
        assert report.exit_code in (3, 4)


@pytest.mark.parametrize("how", EVERY)
def test_checkpoints_without_which_a_branch_or_tag_cannot_be_read_are_errors(how: Damage) -> None:
    for key in keys(_small().storage, "snapshots/"):
        report = verified(_damaged(_small(), key, how))
        errors = [finding for finding in about(report, key) if finding.severity == Severity.ERROR]
        assert errors
        assert all(finding.snapshot_count for finding in errors)


@pytest.mark.parametrize("how", EVERY)
def test_damaged_history_pages_are_found(how: Damage) -> None:
    pages = keys(_long().storage, "history/")
    assert pages
    for key in pages:
        report = verified(_damaged(_long(), key, how))
        assert {finding.severity for finding in about(report, key)} == {
            Severity.WARNING if how is missing else Severity.ERROR
        }


@pytest.mark.parametrize("how", [truncated, empty, flipped])
def test_damaged_hints_are_warnings(how: Damage) -> None:
    for key in keys(_long().storage, "hints/"):
        report = verified(_damaged(_long(), key, how))
        assert [finding.key for finding in report.findings] == [key]
        assert (report.ok, report.exit_code) == (True, 3)


@pytest.mark.parametrize("how", EVERY)
def test_damaged_records_of_the_repository_log_are_found(how: Damage) -> None:
    found = keys(_small().storage, refs_of(_small().storage) + "repository/")
    assert len(found) > 1
    for key in found:
        report = verified(_damaged(_small(), key, how))
        if how is missing and key == found[-1]:
            continue  # nobody can tell that there was a newer one
        assert about(report, key)
        assert report.ok == (how is missing)


@pytest.mark.parametrize("how", [truncated, empty, flipped])
def test_a_damaged_repository_object_is_found(how: Damage) -> None:
    storage = copied(_small().storage)
    repository = Repository.open(storage)
    damage(storage, "repo", how)
    assert about(_report_of(repository), "repo")


def _report_of(repository: Repository):  # type: ignore[no-untyped-def]
    from arraystore._maintenance.verification.verify import verify
    from arraystore._runtime import run

    context = context_of(repository)
    return run(verify(context.storage, context.repository, context.environment, context.reader))


def test_damage_of_two_objects_is_found_at_once() -> None:
    storage = copied(_small().storage)
    both = [keys(storage, "chunks/")[0], record(storage, 1, "side")]
    damage(storage, both[0], missing)
    damage(storage, both[1], flipped)
    report = verified(Repository.open(storage))
    assert {finding.key for finding in report.findings} >= set(both)
