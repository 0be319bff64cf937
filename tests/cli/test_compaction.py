"""Compaction."""

from __future__ import annotations

from tests.cli.conftest import Cli, Made, commit, fill


def test_compaction_changes_neither_values_nor_history_and_a_second_one_nothing(cli: Cli, made: Made) -> None:
    for row in range(10):
        commit(made.open(), f"row {row}", lambda root, row=row: fill(root, slice(row, row + 1), float(row)))
    values, history = made.values("climate/north/rain"), cli("log", made.url).out
    summary = cli("compact", made.url, "--json").json
    assert summary["complete"] is True
    assert summary["layers_after"] < summary["layers_before"]
    assert made.values("climate/north/rain") == values
    assert cli("log", made.url).out == history
    before = made.files()
    assert cli("compact", made.url, "--json").json["records"] == 0
    assert made.files() == before


def test_a_dry_run_of_a_compaction_writes_nothing(cli: Cli, made: Made, read_only: None) -> None:
    before = made.files()
    assert cli("compact", made.url, "--dry-run").out.startswith("Dry run: nothing was changed")
    assert cli("compact", made.url, "--dry-run", "--json").json["dry_run"] is True
    assert made.files() == before


def test_a_budget_is_a_size_and_a_time(cli: Cli, made: Made) -> None:
    cli("compact", made.url, "--max-bytes", "1GiB", "--max-time", "1h30m", "--min-live", "0.3")
    assert "--max-bytes 'much' is not a valid size" in cli("compact", made.url, "--max-bytes", "much", code=1).err
    assert "--max-time 'long' is not a valid duration" in cli("compact", made.url, "--max-time", "long", code=1).err
    assert "min-live" in cli("compact", made.url, "--min-live", "2", code=2).err
    assert "no branch 'none'" in cli("compact", made.url, "--branch", "none", code=1).err
