"""Code that is wrong in any of many ways is noticed: what the checker finds right is right for a reason."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from arraystore._commit import prepare
from arraystore._log.conditional_put import put_surely
from tests.simulation.__main__ import main
from tests.simulation.checker.violations import RULES
from tests.simulation.mutations import MUTATIONS, answers, identity
from tests.simulation.mutations.hunt import Catch, Hunt, explored, hunt, known, table
from tests.simulation.mutations.patching import Mutation, everywhere, patched

UNBROKEN: dict[str, str] = {}
"""Rules that no mutation breaks, each with the reason."""


def test_every_mutation_is_looked_for() -> None:
    assert [name for name, mutation in MUTATIONS.items() if not (mutation.runs or mutation.explored)] == []
    assert {name for name, mutation in MUTATIONS.items() if bool(mutation.profiles) != bool(mutation.runs)} == set()


@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.runs])
def test_simulation_notices_a_mutation(name: str) -> None:
    mutation = MUTATIONS[name]
    catch = known(mutation)
    assert catch.where, f"{catch}: find new seeds with: python -m tests.simulation mutations --hunt --only {name!r}"
    assert mutation.breaks in catch.rules, catch


@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.explored])
def test_exploration_notices_a_mutation(name: str) -> None:
    mutation = MUTATIONS[name]
    catch = explored(mutation)
    assert catch is not None
    assert catch.where, f"nothing noticed it: {catch}"
    assert mutation.runs or mutation.breaks in catch.rules, catch


def test_every_rule_of_the_checker_is_broken_by_a_mutation() -> None:
    broken = {mutation.breaks for mutation in MUTATIONS.values()}
    assert broken | UNBROKEN.keys() == RULES.keys()
    assert broken.isdisjoint(UNBROKEN)


# -- what the documentation says ------------------------------------------------------------------------------------

VERIFICATION = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()
README = (Path(__file__).parents[2] / "README.md").read_text()


def _documented() -> dict[str, list[str]]:
    """Return the cells of each row of the table of mutations, by name."""
    section = VERIFICATION.partition("## Mutations")[2].partition("\n## ")[0]
    head = section.index("| mutation |")
    rows = takewhile(lambda line: line.startswith("|"), section[head:].splitlines())
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0]: row for row in cells[2:]}


def test_the_documentation_lists_each_mutation_and_what_notices_it() -> None:
    documented = _documented()
    assert list(documented) == list(MUTATIONS)
    for name, mutation in MUTATIONS.items():
        _, says, rule, run, events, configuration, *_ = documented[name]
        assert (says, rule) == (mutation.says, mutation.breaks), name
        assert run in ([f"{profile} {seed}" for profile, seed in mutation.runs] or [""]), name
        assert bool(events) == bool(mutation.runs), name
        assert configuration in (mutation.explored or ("",)), name


NUMBERS = {"five": 5, "eleven": 11}


def test_the_documentation_counts_mutations_as_they_are() -> None:
    (noticed,) = re.findall(r"\| (\d+) of (\d+) noticed,", VERIFICATION)
    assert noticed == (str(len(MUTATIONS)),) * 2
    (ways,) = re.findall(r"checked with (\d+) ways of doing it wrong", README)
    assert ways == str(len(MUTATIONS))
    (forget,) = re.findall(r"and (\w+) \[mutations\]\(#mutations\) forget to look", VERIFICATION)
    assert NUMBERS[forget] == len(answers.MUTATIONS)
    (write,) = re.findall(r"; (\w+) \[mutations\]\(#mutations\) write other ones, or do not look", VERIFICATION)
    assert NUMBERS[write] == len(identity.MUTATIONS)


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
    run = Catch("busy 3", "[history] a gap", frozenset({"history"}), 4, 500, 0.1)
    found = Hunt(one, run, Catch("disjoint", "[commits] gone", frozenset({"commits"}), 2, 9, 0.1))
    assert found.caught
    assert table([found]).splitlines()[2] == f"| plain PUT | {one.says} | objects | busy 3 | 500 | disjoint | 2 | 9 |"
    in_vain = Catch("", "", frozenset(), 4, 500, 0.1)
    assert not Hunt(one, in_vain, None).caught
    assert not Hunt(one, run, in_vain).caught


def test_the_command_line_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutations", "--only", "skip a number"]) == 0
    told = capsys.readouterr().out
    assert "| skip a number |" in told
    assert "1 of 1 mutations were noticed" in told


def test_the_command_line_looks_for_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutations", "--only", "skip a number", "--hunt", "--start", "5"]) == 0
    assert "runs: calm 5: [history]" in capsys.readouterr().out
