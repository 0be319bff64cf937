"""What the command line advises has to fit what was asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arraystore.cli import main
from tests.ingest.conftest import climate, write_source


def test_files_that_follow_each_other_without_an_append_dim_are_told_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [write_source(climate(start), tmp_path / f"{start}.nc") for start in (0, 24)]
    assert main(["ingest", *map(str, sources), "--repo", str(tmp_path / "repo"), "--dry-run"]) == 1
    error = capsys.readouterr().err.replace("\n", " ")
    assert "--append-dim DIMENSION" in error
    assert "None" not in error
