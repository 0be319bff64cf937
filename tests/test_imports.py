"""What a process imports: what a session needs and no more, and the rest when it is first used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import arraystore
from arraystore import storage
from arraystore._runtime import lazy_module, lazy_names
from tests.test_floors import ROOT, imported_by, modules_of

FIRST_COMMIT = """
import tempfile, arraystore, zarr
with tempfile.TemporaryDirectory() as directory:
    repo = arraystore.Repository.create(arraystore.local_filesystem_storage(directory))
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=4, chunks=4, dtype="i4")
    array[:] = 1
    session.commit("one chunk")
"""

NEEDED = """
_changes.append_mode _changes.change_set _changes.node_changes _changes.read_tracking
_chunks.block_cache _chunks.cache_budget _chunks.cache_usage _chunks.cells _chunks.checksums _chunks.chunk_table
_chunks.manifest_cache _chunks.pack_writer _chunks.packed_run _chunks.read_memory _chunks.reader _chunks.single_flight
_chunks.spare_buffers _chunks.virtual_checksums _chunks.virtual_chunk_container _chunks.virtual_containers
_commit.batch _commit.fencing _commit.group_commit _commit.note _commit.prepare _commit.prepared
_commit.rebase_request _commit.rebase_step _commit.request
_context.config _context.context _environment
_forks.ledger _forks.merged
_format.box _format.columns _format.derivation _format.digest _format.envelope _format.ids _format.layer
_format.layer_bounds
_format.layer_table _format.lifecycle _format.locations _format.manifest _format.msgpack_limits _format.node
_format.pack _format.record _format.references _format.refs _format.repository_log _format.reserved_keys
_format.snapshot _format.transaction _format.types _format.wire _format.zarr_changes _format.zarr_metadata
_log.backoff _log.branch_entries _log.branch_log _log.chain _log.conditional_put _log.footprint _log.loading
_log.presence _log.record_cache _log.repository_log _log.spans _log.state _log.status
_maintenance.due
_repository.base _repository.creation _repository.methods.history _repository.methods.maintenance
_repository.methods.refs _repository.methods.settings _repository.repository
_runtime.concurrency _runtime.progress _runtime.values
_session.base _session.hierarchy _session.keys _session.listing _session.move _session.pickling _session.session
_session.store _session.unavailable
_session.pipeline.blocks _session.pipeline.byte_codecs _session.pipeline.chains _session.pipeline.codecs
_session.pipeline.emptiness _session.pipeline.installing _session.pipeline.large_chunks _session.pipeline.lookup
_session.pipeline.pipeline _session.pipeline.projection _session.pipeline.reading
_session.pipeline.scatter _session.pipeline.shards _session.pipeline.single_chunks _session.pipeline.target
_session.pipeline.threads _session.pipeline.writing _session.pipeline.zstd_levels
errors
storage.cache_usage storage.forking storage.keys storage.local storage.local_files storage.local_fsyncs
storage.local_handles storage.local_sources storage.object_state storage.protocol storage.source_urls
"""
"""Modules that the first commit of a process loads, without packages that hold others."""


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.strip()


def loaded_by(program: str) -> set[str]:
    """Return the modules of the package, without packages that hold others, that a new process loads."""
    last = "import sys; print(*(name for name in sys.modules if name.startswith('arraystore.')))"
    names = python(f"{program}\n{last}").split()
    return {name for name in names if not any(other.startswith(f"{name}.") for other in modules_of(ROOT))}


def test_the_package_itself_loads_no_module() -> None:
    assert loaded_by("import arraystore") == set()


def test_a_first_commit_loads_what_a_session_needs_and_no_more() -> None:
    assert loaded_by(FIRST_COMMIT) == {f"arraystore.{name}" for name in NEEDED.split()}


COMPILED = {
    "_chunks.cache_usage": {"CacheStats"},
    "_chunks.virtual_chunk_container": {"VirtualChunkContainer"},
    "_context.config": {"RepositoryConfig"},
    "_format.layer": {"Attachment"},
    "_log.status": {"FeatureFlag", "RepoStatus"},
    "storage.cache_usage": {"CacheUsage"},
    "storage.protocol": {"DeleteFailure", "ObjectInfo"},
}
"""Dataclasses of these modules that are made by the standard library: what users see, and what has slots."""


def test_dataclasses_that_a_first_commit_makes_share_their_methods() -> None:
    trees = {name: modules_of(ROOT)[f"arraystore.{name}"] for name in NEEDED.split()}
    made = {
        name: {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any(ast.unparse(each).split("(")[0].endswith("dataclass") for each in node.decorator_list)
        }
        for name, tree in trees.items()
        if "arraystore._runtime.values.dataclass" not in imported_by(tree)
    }
    slotted = {"_format.layer": {"Attachment"}}
    assert {name: classes for name, classes in made.items() if classes} | slotted == COMPILED


def test_a_first_commit_in_a_directory_loads_no_client_of_object_stores_and_nothing_optional() -> None:
    others = "{'obstore', 'xarray', 'dask', 'rich', 'typer', 'pandas', 'pyarrow', 'matplotlib', 'tqdm', 'IPython'}"
    assert python(f"{FIRST_COMMIT}\nimport sys; print(*{others}.intersection(sys.modules))") == ""


def test_a_storage_is_imported_when_it_is_asked_for() -> None:
    loaded = loaded_by("import arraystore; arraystore.in_memory_storage()")
    assert {name for name in loaded if name.startswith("arraystore.storage.")} == {
        f"arraystore.storage.{name}" for name in ("cache_usage", "forking", "keys", "memory", "protocol")
    }


# -- what is lazy is what type checkers and the floors are shown -------------------------------------------------


@cache
def _blocks(name: str) -> tuple[tuple[list[ast.stmt], list[ast.stmt]], ...]:
    """Return what `if TYPE_CHECKING` shows type checkers in a module, with what it keeps from them."""
    conditions = [node for node in ast.walk(modules_of(ROOT)[name]) if isinstance(node, ast.If)]
    plain = [(node.body, node.orelse) for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING"]
    negated = [(node.orelse, node.body) for node in conditions if ast.unparse(node.test) == "not TYPE_CHECKING"]
    return (*plain, *negated)


def _shown(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports bind, with what is imported."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _lazy(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that lazy modules are bound to, with the modules."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            called, arguments = node.value.func, node.value.args
            if isinstance(called, ast.Name) and called.id == "lazy_module" and isinstance(arguments[0], ast.Constant):
                yield node.targets[0].id, str(arguments[0].value)


def test_each_lazy_module_is_shown_to_type_checkers_and_to_the_floors() -> None:
    modules = modules_of(ROOT)
    pairs = [
        (name, set(_lazy(orelse)), set(_shown(body))) for name in modules for body, orelse in _blocks(name) if orelse
    ]
    assert sum(len(lazy) for _, lazy, _ in pairs) > 20
    assert {name: lazy - shown for name, lazy, shown in pairs if lazy - shown} == {}
    assert {wanted for _, lazy, _ in pairs for _, wanted in lazy} <= set(modules)


@pytest.mark.thorough
def test_lazy_modules_are_made_only_where_they_are_shown() -> None:
    calls = {
        name: sum(isinstance(node, ast.Name) and node.id == "lazy_module" for node in ast.walk(tree))
        for name, tree in modules_of(ROOT).items()
    }
    shown = {name: sum(len(list(_lazy(orelse))) for _, orelse in _blocks(name)) for name in modules_of(ROOT)}
    assert calls == shown


@pytest.mark.parametrize("package", [arraystore, storage], ids=["arraystore", "arraystore.storage"])
def test_each_public_name_is_found_where_type_checkers_are_shown_it(package: object) -> None:
    name = package.__name__  # type: ignore[attr-defined]
    (body, _), *_ = _blocks(name)
    shown = {bound: wanted.rpartition(".")[0] for bound, wanted in _shown(body)}
    assert set(shown) == set(package.__all__)  # type: ignore[attr-defined]
    for bound, home in shown.items():
        assert getattr(package, bound) is getattr(sys.modules[home], bound)


def test_a_lazy_module_is_imported_when_something_of_it_is_used() -> None:
    module = lazy_module("arraystore._log.backoff")
    assert repr(module) == "<lazy module arraystore._log.backoff>"
    assert module.Backoff is sys.modules["arraystore._log.backoff"].Backoff


def test_a_lazy_module_without_a_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'arraystore\._log\.backoff' has no attribute 'nonsense'"):
        lazy_module("arraystore._log.backoff").nonsense  # noqa: B018


def test_a_lazy_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'arraystore\.storage' has no attribute 'nonsense'"):
        lazy_names("arraystore.storage", {"arraystore.storage.memory": "MemoryStorage"})[0]("nonsense")


def test_modules_that_users_import_are_attributes_of_the_package() -> None:
    for name in ("distributed", "errors", "storage"):
        assert Path(str(getattr(arraystore, name).__file__)).is_relative_to(ROOT / "arraystore")
