"""Code that is wrong in any of many ways is noticed: what the checker finds right is right for a reason."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from arraystore._commit import prepare
from arraystore._log.branch_log import put_surely
from tests.simulation.__main__ import main
from tests.simulation.mutations import MUTATIONS
from tests.simulation.mutations.hunt import Catch, Hunt, explored, hunt, table
from tests.simulation.mutations.patching import Mutation, everywhere, patched

BUDGET = 40.0
"""Seconds, of which hardly any mutation takes more than two: the machine may be busy."""


def test_every_mutation_is_looked_for() -> None:
    assert [name for name, mutation in MUTATIONS.items() if not (mutation.profiles or mutation.explored)] == []


@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.profiles])
def test_simulation_notices_a_mutation(name: str) -> None:
    catch = hunt(MUTATIONS[name], BUDGET)
    assert catch.where, f"nothing noticed it: {catch}"


@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.explored])
def test_exploration_notices_a_mutation(name: str) -> None:
    catch = explored(MUTATIONS[name], BUDGET)
    assert catch is not None
    assert catch.where, f"nothing noticed it: {catch}"


def test_there_are_mutations_for_every_rule_about_commits() -> None:
    assert len(MUTATIONS) >= 20
    assert sum(bool(mutation.explored) for mutation in MUTATIONS.values()) >= 15


# -- the hunt itself ---------------------------------------------------


def harmless() -> list[Any]:
    return [(prepare, "upload", prepare.upload)]


def test_a_change_that_breaks_nothing_survives() -> None:
    catch = hunt(Mutation("harmless", "nothing", harmless, ("calm",)), 0.0)
    assert (catch.where, catch.runs) == ("", 1)


def test_what_right_code_does_as_well_is_no_catch() -> None:
    """Settings count for the run that a catch is held against, too."""

    def broken() -> list[Any]:
        return [(prepare, "MAX_ATTACHED", None)]  # compared with a number: an error in any commit that attaches

    catch = hunt(Mutation("a setting", "nothing", harmless, ("calm",), settings=broken), 0.0)
    assert catch.where == ""


def test_afterwards_everything_is_as_before() -> None:
    before = {key: dict(vars(module)) for key, module in sys.modules.items() if key.startswith("arraystore.")}
    for mutation in MUTATIONS.values():
        with pytest.raises(ZeroDivisionError), mutation.applied():
            raise ZeroDivisionError
    for key, names in before.items():
        assert vars(sys.modules[key]).keys() >= names.keys()
        assert all(vars(sys.modules[key])[name] is value for name, value in names.items() if callable(value)), key


def test_every_mutation_puts_something_else_in_place() -> None:
    for mutation in MUTATIONS.values():
        changes = list(mutation.changes())
        assert changes, mutation.name
        assert all(vars(owner)[name] is not value for owner, name, value in changes), mutation.name


def test_a_function_is_replaced_wherever_it_was_imported_but_in_the_checker() -> None:
    owners = {owner.__name__ for owner, _, _ in everywhere(put_surely, print)}  # type: ignore[attr-defined]
    assert {"arraystore._log.branch_log", "arraystore._commit.intent_queue"} <= owners
    assert not any(name.startswith("tests.simulation.checker") for name in owners)


def test_nested_patches_end_in_order() -> None:
    class Owner:
        value = 1

    with patched((Owner, "value", 2), (Owner, "value", 3)):
        assert Owner.value == 3
    assert Owner.value == 1


def test_the_table_says_what_noticed_each_mutation() -> None:
    one = MUTATIONS["plain PUT"]
    found = Hunt(one, Catch("busy 3", "[history] a gap", 4, 500, 0.1), Catch("disjoint", "[commits] gone", 2, 9, 0.1))
    assert found.caught
    assert table([found]).splitlines()[2] == (
        f"| plain PUT | {one.says} | busy 3 | history | 4 | 500 | disjoint | 2 | 9 |"
    )
    assert not Hunt(one, Catch("", "", 4, 500, 0.1), None).caught


def test_the_command_line_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutations", "--only", "skip a number", "--budget", "20"]) == 0
    told = capsys.readouterr().out
    assert "| skip a number |" in told
    assert "1 of 1 mutations were noticed" in told
