"""Two charts of the speed table: whole arrays by size of chunks, and all the other work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.speed.contenders import ICECHUNK, OCDBT, OURS_REGIONS, OURS_ZARR, ZARRS
from benchmarks.speed.rows import Line

__all__ = ["draw"]

_SHOWN = {
    OURS_ZARR: "#1a6faf",
    OURS_REGIONS: "#79b4dd",
    ZARRS: "#c8553d",
    "TensorStore files": "#e0a458",
    OCDBT: "#b07d2b",
    ICECHUNK: "#6a8d73",
    "zarr directory": "#9a9a9a",
    "zarr on S3": "#9a9a9a",
}


def draw(lines: Sequence[Line], directory: Path) -> None:
    """Draw both charts into a directory."""
    directory.mkdir(exist_ok=True)
    whole = [line for line in lines if line.part in ("write", "read") and not line.workload.startswith("s3-")]
    _bars(whole, directory / "arrays.svg", "Whole arrays on tmpfs: time over that of arraystore through zarr")
    others = [line for line in lines if line not in whole]
    _bars(others, directory / "work.svg", "Other work: time over that of arraystore through zarr")


def _bars(lines: Sequence[Line], path: Path, title: str) -> None:
    if not lines:
        return
    mpl.rcParams.update({"svg.hashsalt": "arraystore", "font.size": 9, "font.family": "sans-serif"})
    names = [name for name in _SHOWN if any(name in line.ratios for line in lines)]
    height = 0.8 / len(names)
    figure, axes = plt.subplots(figsize=(9, 0.5 + 0.55 * len(lines)), layout="constrained")
    places = np.arange(len(lines))[::-1]
    for number, name in enumerate(names):
        ratios = [line.ratios.get(name, np.nan) for line in lines]
        axes.barh(places + 0.4 - (number + 0.5) * height, ratios, height, color=_SHOWN[name], label=name)
    axes.set_yticks(places, [f"{line.title}: {line.part}" for line in lines])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.125, 0.25, 0.5, 1, 2, 4, 8], ["⅛", "¼", "½", "1", "2", "4", "8"])
    axes.set_title(title, loc="left")
    axes.set_xlabel("less is better")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=True, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
