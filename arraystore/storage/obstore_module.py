"""Native module of the object store client, usable in this process.

Its runtime consists of threads, which do not survive a fork: in a forked child every request of a module loaded by the
parent would wait forever.  A child therefore loads a copy, which starts a new runtime.  The copy must be a different
file, since the loader returns the loaded module for the same file.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import threading
from types import ModuleType
from typing import Any

from arraystore.errors import StorageError
from arraystore.storage.forking import leak

__all__ = ["generation", "obstore_module"]

_NAME = "_obstore"

_lock = threading.Lock()
_module: ModuleType | None = None
_inherited = False

generation = 0
"""Number of forks since the first process; a client of another generation must not be used."""


def _forget_after_fork() -> None:
    global _lock, _module, _inherited, generation
    _lock = threading.Lock()
    _inherited = _inherited or f"obstore.{_NAME}" in sys.modules
    leak(_module)
    _module = None
    generation += 1


os.register_at_fork(after_in_child=_forget_after_fork)


def obstore_module() -> Any:
    """Return the module, loaded on first use; raises `StorageError` if it cannot be loaded."""
    global _module
    module = _module
    if module is None:
        with _lock:
            module = _module = _module or _load()
    return module


def _load() -> ModuleType:
    try:
        shared = importlib.import_module(f"obstore.{_NAME}")
    except ImportError as error:
        raise StorageError(
            f"object stores need the package obstore, and importing it failed ({error}); install it"
        ) from error
    if not _inherited:
        return shared
    try:
        return _load_copy(str(shared.__file__))
    except (OSError, ImportError) as error:
        raise StorageError(
            f"this process was forked from one that had loaded obstore, and failed to load its own copy ({error}); "
            "start processes with multiprocessing's method 'spawn' or 'forkserver'"
        ) from error


def _load_copy(origin: str) -> ModuleType:
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "obstore"}
    fd, path, on_disk = _empty_file()
    try:
        _copy(origin, fd)
        name = f"_arraystore_forked_{generation}.{_NAME}"
        loader = importlib.machinery.ExtensionFileLoader(name, path)
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, loader, origin=path))
        loader.exec_module(module)
    finally:
        # Loading the copy registers its submodules under obstore's names.
        sys.modules.update(before)
        os.close(fd)
        if on_disk:
            os.unlink(path)
    return module


def _empty_file() -> tuple[int, str, bool]:
    """Create a file that the loader can open, in memory if the system supports it."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create(_NAME)
        return fd, f"/proc/self/fd/{fd}", False
    fd, path = tempfile.mkstemp(suffix=".so")
    return fd, path, True


def _copy(origin: str, fd: int) -> None:
    with open(origin, "rb") as source, open(fd, "wb", closefd=False) as target:
        while block := source.read(1024 * 1024):
            target.write(block)
