"""Run the smoke suite and the pages about Spark on each release line of PySpark that is supported.

    python tools/run_spark_versions.py [--blocks] [LINE ...]

Each line gets an environment of its own in .venv-spark/, into which pip installs a wheel of this checkout with its
extra ``spark`` from nothing, and keeps it for the next time; the line of which this Python has the release already
uses that. Then tests/spark_versions/run.py runs there, classic and over Spark Connect: the smoke suite, and each page
about Spark on one of the lines that run, in one of the two modes; with ``--blocks`` every page on each line in both
modes. Two lines run at a time. The exit status is 1 if anything failed, has no Python or could not be installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venv-spark"
SUITE = ROOT / "tests" / "spark_versions" / "run.py"
MINUTES = 20
"""Limit of each step: a busy machine is slow."""


@dataclass(frozen=True)
class Line:
    """A release line of PySpark."""

    name: str
    release: str
    """Its newest release, which is run."""
    pythons: tuple[int, ...]
    """Minor versions of Python that it supports, the one to take first."""


LINES = (
    Line("4.0", "4.0.5", (11, 12, 13)),
    Line("4.1", "4.1.4", (12, 13, 11)),
    Line("4.2", "4.2.1", (12, 13, 11)),
    Line("4.3", "4.3.0", (13, 12, 14, 11)),
)


class StepError(Exception):
    """A step that failed, with what it printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lines named, or all."""
    parser = argparse.ArgumentParser(description="Run what is promised of Spark on every release line of PySpark.")
    parser.add_argument("lines", metavar="LINE", nargs="*", help=f"of {', '.join(line.name for line in LINES)}")
    parser.add_argument("--blocks", action="store_true", help="run the blocks of every page on each line in both modes")
    options = parser.parse_args(arguments)
    names = options.lines
    lines = [line for line in LINES if not names or line.name in names]
    if unknown := set(names) - {line.name for line in lines}:
        parser.error(f"no such line: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="arraystore-wheel-") as directory:
        wheel = build_wheel(Path(directory))
        with ThreadPoolExecutor(2) as pool:
            shares = ["all" if options.blocks else f"{number}/{len(lines)}" for number in range(len(lines))]
            results = list(pool.map(lambda line, share: report(line, wheel, share), lines, shares))
    failed = [line.name for line, well in zip(lines, results, strict=True) if not well]
    if failed:
        print(f"FAILED on PySpark {', '.join(failed)}; see above", flush=True)
    return 1 if failed else 0


def report(line: Line, wheel: Path, share: str) -> bool:
    """Run a line with its share of the pages and print how it went; return whether all is well."""
    began = time.perf_counter()
    try:
        python = environment(line, wheel)
        ready = time.perf_counter()
        said = run(python, SUITE, share, cwd=PLACE)
    except StepError as error:
        print(f"===== PySpark {line.release}: FAILED\n{error}", flush=True)
        return False
    times = f"{ready - began:.0f} s to install, {time.perf_counter() - ready:.0f} s to run"
    print(f"===== PySpark {line.release} on {version_of(python)}: well ({times})\n{said.rstrip()}", flush=True)
    return True


def build_wheel(directory: Path) -> Path:
    """Build the wheel of the checkout."""
    run(Path(sys.executable), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    (wheel,) = directory.glob("*.whl")
    return wheel


def environment(line: Line, wheel: Path) -> Path:
    """Return the Python of the environment of a line, which has this wheel; it is made anew if it was for others."""
    if is_here(line):
        return Path(sys.executable)
    place = PLACE / line.name
    python, stamp = place / "bin" / "python", place / "installed"
    wanted = f"{line.release} {hashlib.sha256((ROOT / 'pyproject.toml').read_bytes()).hexdigest()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        run(interpreter(line), "-m", "venv", "--without-pip", place)
        try:
            pip(python, f"{wheel}[spark]", f"pyspark[connect]=={line.release}")
        except StepError as error:
            raise StepError(f"PySpark {line.release} was NOT RUN, as it could not be installed:\n{error}") from error
        # Each worker that starts would compile what it imports from there; beside it are the same files, compiled once.
        for archive in place.glob("lib/python3*/site-packages/pyspark/python/lib/pyspark.zip"):
            archive.unlink()
        stamp.write_text(wanted)
    else:
        pip(python, "--no-deps", "--force-reinstall", str(wheel))
    return python


def is_here(line: Line) -> bool:
    """Return whether this Python has the release of a line, with what Spark Connect needs and this checkout."""
    wanted = "grpc", "grpc_status", "google.rpc", "pandas", "arraystore"
    try:
        found = importlib.metadata.version("pyspark") == line.release
        origins = [importlib.util.find_spec(name) for name in wanted] if found else [None]
    except ImportError:  # no PySpark, or not the package around a module
        return False
    package = origins[-1]
    ours = package is not None and package.origin is not None and Path(package.origin).is_relative_to(ROOT)
    return ours and None not in origins


def pip(python: Path, *arguments: str) -> None:
    """Install into an environment with the pip of this one."""
    command = ["-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run(Path(sys.executable), *command, *arguments)


def interpreter(line: Line) -> Path:
    """Return a Python that a line supports."""
    for minor in line.pythons:
        for candidate in candidates(minor):
            asked = "import ctypes, ssl, sys, venv; print(sys.version_info[:2])"
            found = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
            if found.stdout.strip() == f"(3, {minor})":
                return candidate
    supported = ", ".join(f"3.{minor}" for minor in sorted(line.pythons))
    raise StepError(
        f"PySpark {line.release} was NOT RUN: it supports Python {supported}, and none of them was found on PATH, nor "
        "where pyenv and uv keep theirs. Install one (pyenv install 3.12)"
    )


def candidates(minor: int) -> Iterator[Path]:
    """Yield the paths where a version of Python may be."""
    if sys.version_info[:2] == (3, minor):
        yield Path(sys.executable)
    if path := shutil.which(f"python3.{minor}"):
        yield Path(path)
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    for places in pyenv.glob(f"3.{minor}.*"), (home / ".local/share/uv/python").glob(f"cpython-3.{minor}.*"):
        yield from (place / "bin" / "python3" for place in sorted(places))


def version_of(python: Path) -> str:
    """Return the name of a Python with its version."""
    return run(python, "--version").strip()


def run(program: Path, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run a program and return what it printed; raise `StepError` with that if it fails."""
    # Workers compile what they import, once, and keep it.
    prefixes = ("PYTHON", "SPARK_", "PYSPARK_", "JDK_JAVA_OPTIONS")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    cwd.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=cwd,
            env=ours,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MINUTES * 60,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        raise StepError(f"{printed}{program.name} {arguments[0]} did not end within {MINUTES} minutes") from error
    if done.returncode:
        raise StepError(f"{done.stdout}{program} {' '.join(map(str, arguments))}: status {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
