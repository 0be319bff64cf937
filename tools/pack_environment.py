"""Pack this Python with arraystore and what it needs into an archive for `spark.archives`; see docs/clusters.md.

The archive has an interpreter of its own, so that workers need nothing but Spark and Java::

    python tools/pack_environment.py environment.tar.gz
    python tools/pack_environment.py environment.tar.gz 'arraystore[spark,virtual]' h5netcdf

Run it on the system, processor and version of glibc of the workers, or older ones, with a Python that is a directory of
its own (of uv, pyenv, or python-build-standalone), not one that is spread over the directories of a distribution.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
UNUSED = ("__pycache__", "config-*", "idlelib", "site-packages", "test", "tkinter", "turtledemo", "*.a")
"""What the library of Python has and workers do not need; packages of the base are not copied."""

LAUNCHER = f"""#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{VERSION}" "$@"
"""
"""The program `bin/python`: it finds the shared library of Python, wherever the archive is unpacked."""


def main(arguments: list[str] | None = None) -> None:
    """Build the archive."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("archive", type=Path, help="file to write, such as environment.tar.gz")
    parser.add_argument(
        "requirements", nargs="*", default=[f"{ROOT}[spark]"], help="packages; this checkout by default"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="environment-") as directory:
        stage = Path(directory)
        copy_python(stage)
        install(stage, options.requirements)
        write_archive(stage, options.archive)
    print(f"{options.archive}: {options.archive.stat().st_size / 1e6:.0f} MB")


def copy_python(stage: Path) -> None:
    """Copy the interpreter, which finds its library next to itself."""
    base = Path(sys.base_prefix)
    library = base / "lib" / VERSION
    if not (base / "bin" / VERSION).exists() or base in (Path("/usr"), Path("/usr/local")) or not library.exists():
        raise SystemExit(f"{base} is not a Python in a directory of its own: run this with one of uv or pyenv")
    (stage / "bin").mkdir()
    shutil.copy2(base / "bin" / VERSION, stage / "bin" / VERSION)
    shutil.copytree(library, stage / "lib" / VERSION, ignore=shutil.ignore_patterns(*UNUSED), symlinks=True)
    for shared in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, stage / "lib" / shared.name)
    launcher = stage / "bin" / "python"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)


def install(stage: Path, requirements: Iterable[str]) -> None:
    """Install packages, without Spark's jars: each worker has those of its own Spark."""
    python = stage / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for command in (["ensurepip"], ["pip", "install", "--no-compile", "--disable-pip-version-check", *requirements]):
        subprocess.run([python, "-m", *command], check=True, env=environment, stdout=subprocess.DEVNULL)
    packages = stage / "lib" / VERSION / "site-packages"
    for unused in ("pip", "pyspark/jars", "pyspark/examples", "pyspark/data", "pyspark/python"):
        shutil.rmtree(packages / unused, ignore_errors=True)


def write_archive(stage: Path, archive: Path) -> None:
    """Write the archive, under its name only when it is complete."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz", compresslevel=5) as file:
        for path in sorted(stage.iterdir()):
            file.add(path, path.name)
    partial.replace(archive)


if __name__ == "__main__":
    main()
