"""Chunk maps: the chunk grid of an array, coloured by what each chunk is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arraystore._format.types import Float64s, Int64s
from arraystore._history.plotting.chunk_picture import ChunkPicture, make_picture
from arraystore._history.plotting.figures import AS_IS, GREY, add_legend, axes_for, name_text
from arraystore._runtime.formatting import count_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ChunkKind", "draw_chunk_map", "rgba_of"]

_FAINT, _FULL = 0.3, 1.0
"""Opacity of a cell with almost no chunk, and of one with all of them."""

_LINED = 64
"""Most rows and columns between which lines are drawn."""

_INCHES_PER_CELL, _LARGEST = 0.28, 6.4
_MOST_STRETCHED = 6
_MOST_NAMES, _MOST_SIDES = 3, 8
"""Dimensions that are summed up, and sides of the chunk grid, that a title names."""


@dataclass(frozen=True, eq=False)
class ChunkKind:
    """Chunks of one colour."""

    label: str
    colour: str
    coords: Int64s
    """Grid coordinates, shape (n, d)."""


def draw_chunk_map(
    path: str,
    grid: tuple[int, ...],
    kinds: Sequence[ChunkKind],
    *,
    dims: Sequence[str] | None = None,
    axes: Sequence[int] | None = None,
    empty: str = "no chunk",
    ax: Axes | None,
    what: str,
) -> Axes:
    """Draw the chunk grid of an array in the colours of its chunks, the fainter the fewer there are in a cell."""
    picture = make_picture(grid, axes)
    names = [f"axis {axis}" for axis in range(len(grid))] if dims is None else dims
    ax = axes_for(ax, what, *_size(picture))
    shown = [kind for kind in kinds if len(kind.coords)]
    image = rgba_of([picture.count(kind.coords) for kind in shown], [kind.colour for kind in shown], picture.capacity)
    _show(ax, picture, image)
    _name_axes(ax, picture, names)
    ax.set_title(_title(path, picture, names), loc="left", fontsize="medium", **AS_IS)
    entries = [(f"{kind.label} ({len(kind.coords):,})", kind.colour) for kind in shown]
    missing = picture.capacity.sum() - sum(len(kind.coords) for kind in shown)
    add_legend(ax, [*entries, *([(f"{empty} ({missing:,.0f})", _pale(GREY))] if missing > 0 else [])])
    return ax


def _size(picture: ChunkPicture) -> tuple[float, float]:
    """Return width and height of a figure in inches."""
    cells = np.array([picture.columns, picture.rows]) * _INCHES_PER_CELL
    width, height = cells * min(1.0, _LARGEST / cells.max())
    return max(width, 2.8) + 2.4, max(height, 0.6) + 1.1


def rgba_of(counts: Sequence[Float64s], colours: Sequence[str], capacity: Float64s) -> Float64s:
    """Mix the colours of cells by their counts of chunks; the opacity follows their share of the capacity."""
    from matplotlib.colors import to_rgba

    image = np.zeros((*capacity.shape, 4))
    image[capacity > 0] = to_rgba(_pale(GREY))
    total = sum(counts, start=np.zeros(capacity.shape))
    some = total > 0
    if some.any():
        mixed = sum(
            (count[..., None] * np.array(to_rgba(colour)[:3]) for count, colour in zip(counts, colours, strict=True)),
            start=np.zeros((*capacity.shape, 3)),
        )
        image[some, :3] = mixed[some] / total[some, None]
        share = np.minimum(total[some] / np.maximum(capacity[some], 1), 1)
        image[some, 3] = _FAINT + (_FULL - _FAINT) * share
    return image


def _pale(colour: str) -> str:
    return colour + "26"


def _show(ax: Axes, picture: ChunkPicture, image: Float64s) -> None:
    rows, columns = picture.rows * picture.step[0], picture.columns * picture.step[1]
    if picture.is_wrapped:
        columns = picture.columns
    stretched = max(rows, columns) > _MOST_STRETCHED * min(rows, columns) and not picture.is_wrapped
    ax.imshow(
        image,
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
        interpolation="nearest",
        aspect="auto" if stretched or picture.columns == 1 else "equal",
    )
    if not picture.is_wrapped:
        down, across = (picture.grid[axis] for axis in picture.axes)
        ax.set_xlim(-0.5, max(across, 1) - 0.5)
        ax.set_ylim(max(down, 1) - 0.5, -0.5)
    if picture.rows <= _LINED and picture.columns <= _LINED:
        _draw_lines(ax, picture)
    for side in ax.spines.values():
        side.set_visible(False)


def _draw_lines(ax: Axes, picture: ChunkPicture) -> None:
    """Separate the cells by lines in the colour of the page."""
    from matplotlib.ticker import FixedLocator

    step = picture.step if not picture.is_wrapped else (1, 1)
    ax.xaxis.set_minor_locator(FixedLocator([at * step[1] - 0.5 for at in range(picture.columns + 1)]))
    ax.yaxis.set_minor_locator(FixedLocator([at * step[0] - 0.5 for at in range(picture.rows + 1)]))
    ax.grid(which="minor", color=ax.get_facecolor(), linewidth=1.0)
    ax.tick_params(which="minor", length=0)


def _name_axes(ax: Axes, picture: ChunkPicture, dims: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
    ax.tick_params(which="major", labelsize="small", length=2)
    if not picture.is_wrapped:
        down, across = picture.axes
        ax.set_ylabel(f"chunk along {name_text(dims[down], 40)}", **AS_IS)
        ax.set_xlabel(f"chunk along {name_text(dims[across], 40)}", **AS_IS)
        return
    ax.set_yticks([])
    if not picture.axes:
        ax.set_xticks([])
        return
    name = name_text(dims[picture.axes[0]], 40)
    if picture.rows > 1 or picture.step[1] > 1:
        ax.set_xticks([])
        row = count_text(picture.columns * picture.step[1], "chunk")
        ax.set_xlabel(f"chunks along {name}, {row} to a row" if picture.rows > 1 else f"chunks along {name}", **AS_IS)
    else:
        ax.set_xlabel(f"chunk along {name}", **AS_IS)


def _title(path: str, picture: ChunkPicture, dims: Sequence[str]) -> str:
    """Return the name of an array, its chunk grid, and the dimensions along which chunks are summed up."""
    grid = picture.grid
    sides = " × ".join(f"{size:,}" for size in grid[:_MOST_SIDES]) or "1"
    sides += " × …" if len(grid) > _MOST_SIDES else ""
    others = [name_text(dims[axis], 20) for axis in range(len(grid)) if axis not in picture.axes and grid[axis] > 1]
    more = f" and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
    summed = f"\nsummed up along {', '.join(others[:_MOST_NAMES])}{more}" if others else ""
    return f"{name_text(path, 40)}: {sides} {'chunk' if set(grid) <= {1} else 'chunks'}{summed}"
