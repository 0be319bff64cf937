"""Installation of the codec pipeline in zarr's configuration."""

from __future__ import annotations

import os
import threading
from typing import Any

import zarr
from zarr.registry import get_pipeline_class

from arraystore._session.pipeline.pipeline import ArrayStoreCodecPipeline, remember_previous

ENVIRONMENT_VARIABLE = "ARRAYSTORE_PIPELINE"
"""Environment variable; ``0``, ``false``, ``no`` or ``off`` leaves zarr's configuration alone."""

_SETTING = "codec_pipeline.path"
_OURS = f"{ArrayStoreCodecPipeline.__module__}.{ArrayStoreCodecPipeline.__qualname__}"
_ZARR = "zarr.core.codec_pipeline.BatchedCodecPipeline"
_OFF = ("0", "false", "no", "off")


class _Installation:
    """State of this process: what it has been told, and what it has done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = os.environ.get(ENVIRONMENT_VARIABLE, "").strip().lower() not in _OFF
        self.installed = False
        self.previous = _ZARR

    def renew_lock(self) -> None:
        """Replace the lock, in a forked child."""
        self.lock = threading.Lock()


_state = _Installation()
os.register_at_fork(after_in_child=_state.renew_lock)


def install_pipeline() -> None:
    """Configure zarr to use the pipeline, once for a process, unless it was told not to.

    A program that chooses another pipeline afterwards keeps its choice.
    """
    if _state.wanted and not _state.installed:
        with _state.lock:
            if _state.wanted and not _state.installed:
                _install()


def _install() -> None:
    current: Any = _current()
    if current != _OURS:
        remember_previous(get_pipeline_class())
        _state.previous = current
        zarr.config.set({_SETTING: _OURS})
    _state.installed = True


def _current() -> Any:
    return zarr.config.get(_SETTING)


def use_pipeline(use: bool = True) -> None:
    """Use the codec pipeline of this library for arrays in sessions' stores, or do not.

    By default it is used from the first `session.store` of a process on, in place of the pipeline that is configured in
    zarr (``codec_pipeline.path``), which still serves arrays in other stores and codecs that this one does not know.
    Arrays that are open keep the pipeline that they were opened with.  The environment variable
    ``ARRAYSTORE_PIPELINE=0`` turns it off for a whole process.

    Parameters
    ----------
    use
        Whether to use it; False restores the pipeline that was configured before.
    """
    with _state.lock:
        _state.wanted = use
        if use:
            _install()
        elif _current() == _OURS:
            zarr.config.set({_SETTING: _state.previous})
