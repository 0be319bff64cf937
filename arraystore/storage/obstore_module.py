"""The object store client's native module, in a form that works in this process.

Its runtime is a set of threads, and threads do not survive a fork: in a forked child every request of a module that the
parent has loaded would wait for ever.  A child therefore loads a copy of its own, whose runtime starts afresh.  The
copy must be another file, since a loader that meets the same file returns what is loaded already.
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
from arraystore.storage.forking import bury

__all__ = ["generation", "obstore_module"]

_NAME = "_obstore"

_lock = threading.Lock()
_module: ModuleType | None = None
_inherited = False

generation = 0
"""Raised by one in every forked child: a client made under another number must not be used."""


def _forget_after_fork() -> None:
    global _lock, _module, _inherited, generation
    _lock = threading.Lock()
    _inherited = _inherited or f"obstore.{_NAME}" in sys.modules
    bury(_module)
    _module = None
    generation += 1


os.register_at_fork(after_in_child=_forget_after_fork)


def obstore_module() -> Any:
    """Return the module, loaded on first use.

    Raises
    ------
    StorageError
        If obstore is not installed, or if a forked child cannot load its copy.
    """
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
            f"object stores need the package obstore, which cannot be imported ({error}); install it"
        ) from error
    if not _inherited:
        return shared
    try:
        return _load_copy(str(shared.__file__))
    except (OSError, ImportError) as error:
        raise StorageError(
            f"this process was forked from one that had loaded obstore, and cannot load a copy for itself ({error}); "
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
        # The copy registers its submodules under obstore's names.
        sys.modules.update(before)
        os.close(fd)
        if on_disk:
            os.unlink(path)
    return module


def _empty_file() -> tuple[int, str, bool]:
    """A file that the loader can open: in memory where the system has that."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create(_NAME)
        return fd, f"/proc/self/fd/{fd}", False
    fd, path = tempfile.mkstemp(suffix=".so")
    return fd, path, True


def _copy(origin: str, fd: int) -> None:
    with open(origin, "rb") as source, open(fd, "wb", closefd=False) as target:
        while block := source.read(1024 * 1024):
            target.write(block)
