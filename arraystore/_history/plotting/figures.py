"""Axes and text of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arraystore._runtime.extras import check_extra
from arraystore._runtime.formatting import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "AS_IS",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALETTE",
    "PURPLE",
    "RED",
    "add_legend",
    "axes_for",
    "name_text",
]

BLUE, ORANGE, RED, GREEN, PURPLE, GREY = "#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#808080"
PALETTE = (BLUE, ORANGE, RED, "#6cc5b0", GREEN, "#ff8ab7", PURPLE, "#97bbf5")

AS_IS: dict[str, Any] = {"parse_math": False, "usetex": False}
"""For text with names from a repository, in which dollars and backslashes mean themselves."""


def axes_for(ax: Axes | None, what: str, width: float, height: float) -> Axes:
    """Return axes, those of a new figure if there are none; raises `ModuleNotFoundError` naming the extra."""
    check_extra(what, "plot", "matplotlib")
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def add_legend(ax: Axes, entries: Sequence[tuple[str, str]], *, below: bool = False) -> None:
    """Put labels with their colours beside the axes, or below them."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=label) for label, colour in entries]
    if not handles:
        return
    if below:
        ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=len(handles), **_LEGEND)
    else:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), **_LEGEND)


_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.0, "borderaxespad": 0.0}


def name_text(text: str, limit: int = 60) -> str:
    """Return a name that is cut at its start, where it says least."""
    line = one_line(text, 4 * limit)
    return line if len(line) <= limit else "…" + line[1 - limit :]
