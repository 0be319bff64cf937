"""The bank of the examples: it runs, and its checks notice what they are there for."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import zarr

import arraystore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, imported as it imports its own parts."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import bank_accounts

    yield bank_accounts
    for name in ("bank_accounts", "bank_places", "bank_team", "bank_transfers"):
        sys.modules.pop(name, None)


@pytest.fixture
def repository(bank: ModuleType) -> arraystore.Repository:
    made = arraystore.Repository.create(arraystore.in_memory_storage())
    bank.open_bank(made, tellers=2)
    return made


@pytest.mark.thorough
def test_the_example_runs_in_memory_and_with_processes() -> None:
    command = [sys.executable, str(EXAMPLES / "bank_accounts.py"), "--tellers", "2", "--transfers", "2"]
    done = subprocess.run(
        [*command, "--storage", "memory", "--storage", "local"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for way in ("unsafe", "retry", "rebase", "serializable"):
        assert done.stdout.count(f"│ {way}") == 2
    assert "the account holds -100" in done.stdout
    assert "ReadConflict" in done.stdout


@pytest.mark.parametrize("number", range(4))
def test_each_way_moves_money_in_one_commit(bank: ModuleType, repository: arraystore.Repository, number: int) -> None:
    way = bank.WAYS[number]
    before = way.balances(repository.readonly_session("main").store)
    assert way.transfer(repository, random.Random(1), 0) == (True, 0)
    moved = way.balances(repository.readonly_session("main").store) - before
    assert len(moved.nonzero()[0]) == 2
    assert moved.sum() == 0
    bank.check(repository, way, 3)


def test_the_unsafe_way_gives_up_and_the_others_begin_anew(
    bank: ModuleType, repository: arraystore.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bank_transfers

    unhurried = bank_transfers.overwrite_balances
    meanwhile = [True, True]

    def overtaken(session: arraystore.Session, chance: random.Random) -> None:
        if meanwhile:
            meanwhile.pop()
            quicker = repository.writable_session("main")
            touch_all(quicker)
            quicker.commit("somebody is quicker")
        unhurried(session, chance)

    monkeypatch.setattr(bank_transfers, "overwrite_balances", overtaken)
    assert bank_transfers.unsafe(repository, random.Random(1), 0) == (False, 1)
    assert bank_transfers.retry(repository, random.Random(1), 0) == (True, 1)
    meanwhile.append(True)
    assert bank_transfers.rebase(repository, random.Random(1), 0) == (True, 1)


def touch_all(session: arraystore.Session) -> None:
    """Write every account, so that whatever else is going on collides."""
    accounts = zarr.open_array(session.store, path="accounts", mode="r+")
    accounts[:] = accounts[:]


def test_two_tellers_cannot_overdraw_an_account_in_serializable_sessions(bank: ModuleType) -> None:
    told = bank.write_skew()
    assert "both commits succeed, and the account holds -100" in told.partition("serializable")[0]
    assert "ReadConflict" in told.partition("serializable")[2]


def test_an_audit_is_refused_while_money_moves_and_succeeds_afterwards(
    bank: ModuleType, repository: arraystore.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bank_transfers

    commit = arraystore.Session.commit

    def after_a_transfer(self: arraystore.Session, message: str, **options: object) -> str:
        if message.startswith("audit"):
            monkeypatch.setattr(arraystore.Session, "commit", commit)
            bank_transfers.serializable(repository, random.Random(1), 0)
        return commit(self, message, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(arraystore.Session, "commit", after_a_transfer)
    assert bank_transfers.audit(repository, 0) is False
    assert bank_transfers.audit(repository, 0) is True


@pytest.mark.parametrize(
    ("account", "change", "told"),
    [(3, -1, "were 5000, and 4999"), (3, 1, "were 5000, and 5001")],
)
def test_the_checks_notice_money_that_vanishes_or_appears(
    bank: ModuleType, repository: arraystore.Repository, account: int, change: int, told: str
) -> None:
    with repository.transaction("main", message="wrong") as store:
        accounts = zarr.open_array(store, path="accounts", mode="r+")
        accounts[account] = int(accounts[account]) + change
    with pytest.raises(AssertionError, match=told):
        bank.check(repository, bank.WAYS[2], 3)


def test_the_checks_notice_an_overdrawn_account(bank: ModuleType, repository: arraystore.Repository) -> None:
    with repository.transaction("main", message="wrong") as store:
        accounts = zarr.open_array(store, path="accounts", mode="r+")
        accounts[4], accounts[5] = -1, 201
    with pytest.raises(AssertionError, match="account 4 is overdrawn: -1"):
        bank.check(repository, bank.WAYS[2], 3)


def test_the_checks_notice_a_commit_that_is_missing(bank: ModuleType, repository: arraystore.Repository) -> None:
    with pytest.raises(AssertionError, match="3 commits were acknowledged, and history has 2"):
        bank.check(repository, bank.WAYS[2], 3)
