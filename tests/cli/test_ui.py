"""The command `ui`: reports, and what keeps it from serving a page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import arraystore
from tests.cli.conftest import Cli


def test_the_command_writes_a_report(cli: Cli, tmp_path: Path) -> None:
    url = str(tmp_path / "repository")
    arraystore.Repository.create(arraystore.local_filesystem_storage(url))
    file = tmp_path / "report.html"
    shown = cli("ui", url, "--export", str(file))
    assert shown.out.startswith(f"wrote {file} (")
    found = cli("ui", url, "--export", str(file), "--json").json
    assert found == {"file": str(file), "bytes": file.stat().st_size, "complete": True}
    assert "no branch 'none'" in cli("ui", url, "--export", str(file), "--branch", "none", code=1).err
    assert cli("ui", str(tmp_path / "none"), "--no-browser", code=10).err.startswith("error: ")


def test_the_server_cannot_take_all_memory_whatever_it_has_already() -> None:
    program = (
        "import mmap\nheld = mmap.mmap(-1, 6 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)\n"
        "from arraystore.ui.address_space import limit_address_space\nlimit_address_space(1 << 30)\n"
        "bytearray(64 << 20)\ntry:\n    bytearray(2 << 30)\nexcept MemoryError:\n    print('bounded')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("bounded", "")
