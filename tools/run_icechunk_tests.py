"""Run Icechunk's own Python tests over ``arraystore.compat.icechunk``, and tell which of them pass.

    python tools/run_icechunk_tests.py [--source SDIST] [--python PYTHON] [--no-s3] [--keep] [FILE ...]

The tests come with the source distribution of the version that ``icechunk_tests.toml`` beside this program names; pip
gets it from the index that it is configured for, unless ``--source`` names one.  They are copied into a temporary
folder, in which ``icechunk`` and all its modules are those of the compatibility package, also in workers.  A real S3
server (SeaweedFS) stands in for the MinIO that they expect.

``icechunk_tests.toml`` names every test that does not pass, and why.  The exit status is 1 where a test fails that
it does not name, or where one passes that it names.  The tests need most of what Icechunk's extra ``test`` brings
(distributed, hypothesis, pytest-asyncio, ...), which the extra ``dev`` of arraystore has.  ``--slice`` runs the files
that need no server, in half a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("icechunk_tests.toml")
SECONDS_PER_FILE = 1800
_SHARDS = "8"
"""Part of the examples that Icechunk generates in its own runs: one of so many parts."""

_ALIAS = '''"""Icechunk, as arraystore has it."""

import importlib
import importlib.abc
import importlib.machinery
import pkgutil
import sys
import types

compat = importlib.import_module("arraystore.compat.icechunk")
HERE = __path__[0]


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        own = importlib.machinery.PathFinder.find_spec(name, [HERE + "/testing"])
        if name.startswith("icechunk.testing.") and own is not None:
            return own
        return importlib.machinery.ModuleSpec(name, self) if name.startswith("icechunk.") else None

    def create_module(self, spec):
        if spec.name == "icechunk._icechunk_python":
            return inner()
        module = importlib.import_module("arraystore.compat." + spec.name)
        if spec.name == "icechunk.testing":
            module.__path__.append(HERE + "/testing")
        self.spec = module.__spec__
        return module

    def exec_module(self, module):
        if module.__name__.startswith("arraystore."):
            module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None, origin=module.__file__)


def inner():
    """Everything that any module of the package has, as the compiled module of Icechunk has it."""
    module = types.ModuleType("icechunk._icechunk_python")
    for found in pkgutil.iter_modules(compat.__path__):
        if found.name not in ("dask", "xarray"):
            names = vars(importlib.import_module(compat.__name__ + "." + found.name))
            vars(module).update({name: value for name, value in names.items() if name[0] != "_"})
    module._all_error_kinds = lambda: [kind.value for kind in compat.ErrorKind]
    return module


sys.meta_path.insert(0, Alias())
sys.modules["icechunk"] = compat
'''


_STAND_INS = {
    "boto3": """from botocore.session import get_session


def client(service, **options):
    return get_session().create_client(service, **options)
""",
    "mypy_boto3_s3/client": "S3Client = object\n",
    "termcolor": "def colored(text, *colours, **attributes):\n    return text\n",
}
"""What the tests need of packages that few have, where they are not installed."""

_BACKEND = """from pathlib import Path


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory, "icechunk-{version}.dist-info")
    folder.mkdir()
    folder.joinpath("METADATA").write_text("Metadata-Version: 2.1\\nName: icechunk\\nVersion: {version}\\n")
    return folder.name
"""
"""A build backend in place of the real one, which wants Rust: only the archive is needed."""

_INI = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers =
    gpu
    hypothesis
"""


@dataclass
class Outcome:
    """What became of the tests of a file."""

    name: str
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Last line of the error by the name of the test."""
    skipped: int = 0


@dataclass(frozen=True)
class Known:
    """Tests of a file that do not pass, and why."""

    reason: str
    tests: tuple[str, ...]
    about: str
    """What they look at besides what users see: "files", "wording" or "server"; empty for nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print a table, and return the exit status."""
    options = _options(arguments)
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    if options.page:
        print(page_section(table))
        return 0
    with tempfile.TemporaryDirectory(prefix="icechunk-tests-", delete=not options.keep) as folder:
        place = Path(folder)
        _unpack(options.source or _download(table["version"], place), place)
        skipped = table["not_applicable"]
        files = options.files or [name for name in _files(place) if name not in skipped]
        if options.slice:
            files = table["slice"]
        with _server(options.s3 and not options.slice) as server:
            _adapt(place, server, options.python)
            print(_HEAD)
            outcomes = [_run_and_show(place, name, options.python, table) for name in files]
        if options.keep:
            print(f"The tests are in {place}.")
    return _report(outcomes, table, shown=options.verbose)


_HEAD = f"{'file':44} {'passed':>7} {'failed':>7} {'unknown':>8} {'of all':>7} {'black box':>10}"


def _run_and_show(place: Path, name: str, python: str, table: Mapping[str, Any]) -> Outcome:
    outcome = _run(place, name, python, [row["test"] for row in table["left_out"] if row["file"] == name])
    passed, unknown = len(outcome.passed), len(_unknown(outcome, table))
    inside = [row for row in known_failures(table, name) if row.about]
    seen = [test for test in outcome.failed if not _matches(test, inside)]
    parts = f"{_part(passed, len(outcome.failed)):>7} {_part(passed, len(seen)):>10}"
    print(f"{name:44} {passed:7} {len(outcome.failed):7} {unknown:8} {parts}", flush=True)
    return outcome


def _part(passed: int, failed: int) -> str:
    return f"{100 * passed / (passed + failed):.0f} %" if passed + failed else "-"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", help="files of tests, such as test_session.py; by default all")
    parser.add_argument("--source", type=Path, help="the source distribution of Icechunk, or its unpacked folder")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has what the tests need")
    parser.add_argument("--no-s3", dest="s3", action="store_false", help="start no S3 server")
    parser.add_argument("--slice", action="store_true", help="only the files that the table names as a quick slice")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    parser.add_argument("--page", action="store_true", help="print the section of the docs about failures, and end")
    parser.add_argument("--verbose", action="store_true", help="print the errors of all failures")
    return parser.parse_args(arguments)


# -- the tests ----------------------------------------------------------------------------------------------------


def _download(version: str, place: Path) -> Path:
    """Return the source distribution, which pip gets without building it."""
    backend = place / "backend"
    backend.mkdir()
    (backend / "maturin.py").write_text(_BACKEND.format(version=version))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "icechunk", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--dest", str(place), f"icechunk=={version}"],
        env=os.environ | {"PYTHONPATH": str(backend)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = sorted(place.glob("icechunk-*.tar.gz"))
    if not found:
        raise SystemExit(
            f"pip could not get the source distribution of icechunk {version}, whose tests were to be run: is a "
            f"package index configured?\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
        )
    return found[0]


def _unpack(source: Path, place: Path) -> None:
    """Copy the folder of tests."""
    with tarfile.open(source) as archive:
        for member in archive:
            head, found, rest = member.name.partition("/icechunk-python/tests/")
            if found and "/" not in head and not rest.startswith("data/"):
                member.name = "tests/" + rest
                archive.extract(member, place, filter="data")
            head, found, rest = member.name.partition("/python/icechunk/testing/")
            if found and "/" not in head and rest != "__init__.py":
                member.name = "icechunk/testing/" + rest  # its models and strategies are those of its own tests
                archive.extract(member, place, filter="data")


def _files(place: Path) -> list[str]:
    tests = place / "tests"
    return sorted(str(path.relative_to(tests)) for path in tests.rglob("test_*.py"))


def _adapt(place: Path, server: Mapping[str, str], python: str) -> None:
    """Put the compatibility package in Icechunk's place, and the server in that of the one that is expected."""
    (place / "icechunk").mkdir(exist_ok=True)
    (place / "icechunk" / "__init__.py").write_text(_ALIAS)
    (place / "pytest.ini").write_text(_INI)
    for name, text in _STAND_INS.items():
        found = subprocess.run([python, "-c", f"import {name.replace('/', '.')}"], capture_output=True, check=False)
        if found.returncode:
            (place / name).parent.mkdir(exist_ok=True)
            (place / f"{name}.py").write_text(text)
    for path in (place / "tests").rglob("*.py"):
        text = path.read_text()
        changed = text
        for old, new in server.items():
            changed = changed.replace(old, new)
        if changed != text:
            path.write_text(changed)


@contextlib.contextmanager
def _server(wanted: bool) -> Iterator[dict[str, str]]:
    """Run an S3 server; yield what to replace in the tests by its address and its keys."""
    if not wanted:
        yield {}
        return
    sys.path.insert(0, str(ROOT))
    from tests.s3server import running_server

    with running_server() as server:
        server.client().create_bucket(Bucket="testbucket")
        keys = f'("{server.access_key_id}", "{server.secret_access_key}")'
        users = {f'("{name}", "{key}")': keys for name, key in (("modify", "modifydata"), ("test123", "test123"))}
        yield {"http://localhost:4200": server.endpoint_url, **users, '("readonly", "basicuser")': keys}


# -- running them -------------------------------------------------------------------------------------------------


def _run(place: Path, name: str, python: str, left_out: Sequence[str]) -> Outcome:
    """Run one file in a process of its own."""
    report = place / "report.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"CI": "1", "ICECHUNK_HYPOTHESIS_SHARDS": _SHARDS}
    command = [python, "-m", "pytest", f"tests/{name}", "-q", f"--junitxml={report}"]
    if left_out:
        command += ["-k", " and ".join(f"not {test}" for test in left_out)]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={SECONDS_PER_FILE - 60}", "-W", "ignore"]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=SECONDS_PER_FILE, check=False
        )
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        output = f"it took more than {SECONDS_PER_FILE} s"
    outcome = Outcome(name)
    if not report.exists():
        outcome.failed["(the file itself)"] = output[-500:]
        return outcome
    for case in ET.parse(report).iter("testcase"):
        _note(outcome, case)
    return outcome


def _note(outcome: Outcome, case: Any) -> None:
    title = case.get("name") or "?"
    problem = case.find("failure")
    problem = case.find("error") if problem is None else problem
    if problem is not None:
        outcome.failed[title] = (problem.get("message") or problem.text or "").strip()
    elif case.find("skipped") is not None:
        outcome.skipped += 1
    else:
        outcome.passed.append(title)


def plain(name: str) -> str:
    """Return the name of a test without what makes it a pattern."""
    return name.replace("[[]", "[").replace("[]]", "]").replace("*", "")


def page_section(table: Mapping[str, Any]) -> str:
    """Return the section of docs/migrating-from-icechunk.md about tests that do not pass, in Markdown."""
    lines = ["| tests | why they do not pass |", "| --- | --- |"]
    for row in table["failures"]:
        names = ", ".join(f"`{plain(name)}`" for name in row["tests"])
        lines.append(f"| `{row['file']}`: {names} | {row['reason']} |")
    lines += ["", "Not run, since they are about Icechunk's own files or need the internet:", ""]
    lines += ["| file | why |", "| --- | --- |"]
    lines += [f"| `{file}` | {reason} |" for file, reason in table["not_applicable"].items()]
    lines += [f"| `{row['file']}`: `{row['test']}` | {row['reason']} |" for row in table["left_out"]]
    return "\n".join(lines)


# -- the table ----------------------------------------------------------------------------------------------------


def known_failures(table: Mapping[str, Any], name: str) -> list[Known]:
    """Return what the data file says of a file."""
    rows = [row for row in table.get("failures", []) if row["file"] == name]
    return [Known(row["reason"], tuple(row["tests"]), row.get("about", "")) for row in rows]


def _matches(test: str, known: Sequence[Known]) -> bool:
    return any(test == name or fnmatch.fnmatchcase(test, name) for row in known for name in row.tests)


def _unknown(outcome: Outcome, table: Mapping[str, Any]) -> dict[str, str]:
    known = known_failures(table, outcome.name)
    return {test: why for test, why in outcome.failed.items() if not _matches(test, known)}


def _report(outcomes: Sequence[Outcome], table: Mapping[str, Any], *, shown: bool) -> int:
    """Print what fails and is not named, and what is named and does not fail."""
    problems: list[str] = []
    for outcome in outcomes:
        listed = outcome.failed if shown else _unknown(outcome, table)
        problems += [f"{outcome.name}::{test} fails: {why[:600]}" for test, why in listed.items()]
        names = [name for row in known_failures(table, outcome.name) for name in row.tests]
        problems += [
            f"{outcome.name}::{name} is named, and does not fail"
            for name in names
            if not any(fnmatch.fnmatchcase(test, name) or test == name for test in outcome.failed)
        ]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
