"""The picture of the demo: warming of the last decade against the first, in two scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from zarr.abc.store import Store

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm

SCENARIOS = {
    "a1b": ("A1B", "emissions peak around 2050", "#b2182b"),
    "e1": ("E1", "strong cuts, aiming at 2 K worldwide", "#2166ac"),
}
SOURCE = (
    "Met Office Unified Model, from the package iris-sample-data. "
    "The coast is that of the ocean model (NEMO) in the same repository."
)
INK, FAINT = "#333333", "#8a8a8a"


def draw_warming(store: Store, picture: Path) -> dict[str, float]:
    """Draw the picture, and return the mean warming of the region in each scenario."""
    air = {group: _air_temperature(store, group) for group in SCENARIOS}
    change = {
        group: field.isel(time=slice(-10, None)).mean("time") - field.isel(time=slice(10)).mean("time")
        for group, field in air.items()
    }
    means = {SCENARIOS[group][0]: float(_regional_mean(field)) for group, field in change.items()}
    with plt.rc_context(
        {"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    ):
        figure = plt.figure(figsize=(12, 8.1), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.5, 1))
        maps = [figure.add_subplot(grid[0, column]) for column in range(2)]
        _draw_maps(figure, maps, change, means, _coast(store))
        _draw_curves(figure.add_subplot(grid[1, :]), air)
        first, last = _decade(air["a1b"], 0, 9), _decade(air["a1b"], -10, -1)
        figure.suptitle(f"Air temperature over North America: {last} against {first}", fontsize=16, fontweight="bold")
        figure.supxlabel(SOURCE, fontsize=8, color=FAINT, x=0.01, ha="left")
        figure.savefig(picture, dpi=140)
        plt.close(figure)
    return means


def _air_temperature(store: Store, group: str) -> xr.DataArray:
    coder: Any = xr.coders.CFDatetimeCoder(use_cftime=True)
    return xr.open_dataset(store, engine="zarr", group=group, decode_times=coder)["air_temperature"].load()


def _decade(field: xr.DataArray, first: int, last: int) -> str:
    years = field["time"].dt.year.values
    return f"{years[first]}–{years[last]}"


def _regional_mean(field: xr.DataArray) -> xr.DataArray:
    """Mean over the region; cells become smaller towards the pole."""
    return field.weighted(np.cos(np.deg2rad(field["latitude"]))).mean(("latitude", "longitude"))


def _coast(store: Store) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the ocean model of the same repository has land, on its own grid, near the region."""
    ocean = xr.open_dataset(store, engine="zarr", group="ocean", decode_times=False)
    land = np.isnan(ocean["tos"].isel(time_counter=0).values).astype(float)
    longitude, latitude = ocean["nav_lon"].values % 360, ocean["nav_lat"].values
    near = (longitude > 215) & (longitude < 325) & (latitude > 5) & (latitude < 70)
    rows, columns = np.flatnonzero(near.any(axis=1)), np.flatnonzero(near.any(axis=0))
    box = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    return longitude[box], latitude[box], land[box]


def _draw_maps(
    figure: Any, maps: list[Axes], change: dict[str, xr.DataArray], means: dict[str, float], coast: Any
) -> None:
    highest = int(np.ceil(max(float(field.max()) for field in change.values())))
    lowest = int(np.floor(min(float(field.min()) for field in change.values())))
    levels = np.arange(min(lowest, 0), highest + 0.5, 0.5)
    colours = plt.get_cmap("YlOrRd", len(levels) - 1)
    mesh = None
    for axes, (group, field) in zip(maps, change.items(), strict=True):
        mesh = axes.pcolormesh(
            field["longitude"],
            field["latitude"],
            field,
            cmap=colours,
            norm=BoundaryNorm(levels, colours.N),
            shading="nearest",
        )
        axes.contour(*coast, levels=[0.5], colors=INK, linewidths=0.9)
        name, about, colour = SCENARIOS[group]
        axes.set_title(f"Scenario {name}: {about}", loc="left", color=colour, fontweight="bold", fontsize=11)
        _label_map(axes, field)
        note = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        axes.text(0.02, 0.04, f"region: {means[name]:+.1f} K", transform=axes.transAxes, bbox=note, fontsize=11)
    bar = figure.colorbar(mesh, ax=maps, shrink=0.78, pad=0.015, aspect=24)
    bar.set_label("warming (K)")
    bar.set_ticks(np.arange(levels[0], levels[-1] + 1))
    bar.outline.set_visible(False)


def _label_map(axes: Axes, field: xr.DataArray) -> None:
    west, east = float(field["longitude"][0]), float(field["longitude"][-1])
    south, north = float(field["latitude"][0]), float(field["latitude"][-1])
    axes.set(xlim=(west, east), ylim=(south, north), aspect=1 / np.cos(np.deg2rad((south + north) / 2)))
    axes.set_xticks(np.arange(240, 311, 20), [f"{360 - degrees}°W" for degrees in range(240, 311, 20)])
    axes.set_yticks(np.arange(20, 61, 10), [f"{degrees}°N" for degrees in range(20, 61, 10)])
    axes.tick_params(length=3)
    axes.spines[:].set_color(FAINT)


def _draw_curves(axes: Axes, air: dict[str, xr.DataArray]) -> None:
    for group, field in air.items():
        name, _, colour = SCENARIOS[group]
        mean = _regional_mean(field)
        anomaly = (mean - mean[:10].mean()).values
        years = field["time"].dt.year.values
        smooth = np.convolve(anomaly, np.ones(10) / 10, "valid")
        axes.plot(years, anomaly, color=colour, alpha=0.3, linewidth=0.9)
        axes.plot(years[5 : 5 + len(smooth)], smooth, color=colour, linewidth=2.2)
        axes.annotate(
            name,
            (years[-1], smooth[-1]),
            (8, 0),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
            va="center",
        )
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set_title(
        "Mean of the region against the first decade: each year (thin) and ten years together (thick)",
        loc="left",
        fontsize=11,
        fontweight="bold",
    )
    axes.set_ylabel("warming (K)")
    axes.set_xlim(years[0], years[-1] + 8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)
