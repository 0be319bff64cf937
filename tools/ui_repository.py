"""A repository of real data for the pictures of docs/ui.md: two scenarios of the climate, decade by decade.

The data are annual air temperatures over North America by the Met Office, from the package iris-sample-data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import iris_sample_data
import netCDF4
import numpy as np
import numpy.typing as npt
import zarr

import arraystore
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.ids import IdSource

T = TypeVar("T")

SAMPLES = Path(iris_sample_data.path)
SCENARIOS = {"a1b": SAMPLES / "A1B_north_america.nc", "e1": SAMPLES / "E1_north_america.nc"}
AIR = "climate/air_temperature"
NORMAL = "climate/decade_mean"
FIRST_YEAR, SCENARIOS_FROM, YEARS = 1860, 2000, 240
_KEPT = {"units", "standard_name", "long_name", "calendar", "axis", "source", "cell_methods"}


NOW = 1_795_000_000
"""End of the history in seconds since 1970; pictures are the same whenever they are made."""

_WEEK = 7 * 86_400


class _Calendar:
    """A clock that a program sets, so that a history of a year takes seconds."""

    def __init__(self, weeks: int) -> None:
        self.seconds = NOW - weeks * _WEEK

    def pass_time(self, seconds: int = _WEEK) -> None:
        self.seconds += seconds

    def environment(self) -> Environment:
        return Environment(now_us=lambda: self.seconds * 1_000_000, new_id=IdSource(lambda: self.seconds * 1_000))


def build(storage: arraystore.Storage) -> arraystore.Repository:
    """Write a history: the past on main, each scenario on a branch, an ocean beside, a revert, two tags."""
    calendar = _Calendar(weeks=40)
    token = ENVIRONMENT.set(calendar.environment())
    try:
        return _build(storage, calendar)
    finally:
        ENVIRONMENT.reset(token)


def at_end_of_history(work: Callable[[], T]) -> T:
    """Run something with the clock at the end of the history."""
    token = ENVIRONMENT.set(_Calendar(weeks=0).environment())
    try:
        return work()
    finally:
        ENVIRONMENT.reset(token)


def _build(storage: arraystore.Storage, calendar: _Calendar) -> arraystore.Repository:
    repo = arraystore.Repository.create(storage)
    with repo.transaction("main", message="Create the hierarchy of the climate archive") as store:
        _create(store)
    for year in range(FIRST_YEAR, SCENARIOS_FROM, 10):
        calendar.pass_time()
        _add_decade(repo, "main", SCENARIOS["a1b"], year)
    repo.create_tag("historical-1.0", repo.lookup_branch("main"))
    calendar.pass_time()
    _add_ocean(repo)
    _correct(repo, calendar)
    for name in SCENARIOS:
        repo.create_branch(f"scenario/{name}", repo.lookup_branch("main"))
    for year in range(SCENARIOS_FROM, FIRST_YEAR + YEARS, 10):
        for name, path in SCENARIOS.items():
            calendar.pass_time(_WEEK // 2)
            _add_decade(repo, f"scenario/{name}", path, year)
    calendar.pass_time(3_600)
    _describe(repo, "scenario/a1b", "A1B: emissions peak around 2050")
    _describe(repo, "scenario/e1", "E1: strong cuts, aiming at 2 K worldwide")
    repo.create_tag("cmip-release", repo.lookup_branch("scenario/a1b"))
    return repo


def _correct(repo: arraystore.Repository, calendar: _Calendar) -> None:
    """Correct an attribute on a branch, repeat that on main, undo a change that was wrong; somebody comes late."""
    late = repo.writable_session("main")
    zarr.open_group(late.store, path="ocean").attrs["institution"] = "NEMO consortium"
    repo.create_branch("fix/units", repo.lookup_branch("main"))
    calendar.pass_time(86_400)
    with repo.transaction("fix/units", message="Spell the units of the ocean as CF does") as store:
        zarr.open_array(store, path="ocean/tos").attrs["units"] = "degree_C"
    calendar.pass_time(3_600)
    with repo.transaction("main", message="Mask the first month of the ocean") as store:
        zarr.open_array(store, path="ocean/tos")[0] = np.nan
    calendar.pass_time(1_800)
    repo.revert(repo.lookup_branch("main"), branch="main", message="Revert: the first month is sound")
    calendar.pass_time(600)
    repo.cherry_pick(repo.lookup_branch("fix/units"), branch="main")
    calendar.pass_time(900)
    late.commit("Name the institution of the ocean model", rebase_with=arraystore.ConflictDetector())


def read(path: Path, name: str, region: Any = ...) -> npt.NDArray[Any]:
    """Read a variable of a source."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return np.asarray(file[name][region])


def _create(store: Any) -> None:
    group = zarr.create_group(store, path="climate", attributes={
        "title": "Air temperature over North America", "institution": "Met Office Hadley Centre",
        "Conventions": "CF-1.8",
    })  # fmt: skip
    with netCDF4.Dataset(SCENARIOS["a1b"]) as file:
        for name in ("time", "latitude", "longitude", "air_temperature"):
            variable = file[name]
            air = name == "air_temperature"
            array = group.create_array(
                name, shape=variable.shape, chunks=(10, *variable.shape[1:]) if air else variable.shape,
                dtype=variable.dtype, dimension_names=variable.dimensions, fill_value=np.nan,
                attributes={key: variable.getncattr(key) for key in _KEPT & set(variable.ncattrs())},
            )  # fmt: skip
            if not air:
                array[...] = variable[...]
        group.create_array(
            "decade_mean", shape=file["air_temperature"].shape[1:], chunks=(19, 25), dtype="f4",
            dimension_names=("latitude", "longitude"), fill_value=np.nan,
            attributes={"units": "K", "long_name": "Mean air temperature of the latest decade"},
        )  # fmt: skip


def _add_decade(repo: arraystore.Repository, branch: str, path: Path, year: int) -> None:
    at = slice(year - FIRST_YEAR, year - FIRST_YEAR + 10)
    session = repo.writable_session(branch)
    values = read(path, "air_temperature", at)
    session.write(AIR, at, values)
    mean = values.mean(axis=0)
    session.write(NORMAL, ..., mean)
    zarr.open_group(session.store, path="climate").attrs["latest_decade"] = f"{year}-{year + 9}"
    kelvin = float(np.average(mean.mean(axis=1), weights=np.cos(np.radians(read(path, "latitude")))))
    session.commit(
        f"Add {year}–{year + 9}: {kelvin - 273.15:+.2f} °C on average",
        {"decade": year, "mean_kelvin": round(kelvin, 3), "source": path.name},
    )


def _add_ocean(repo: arraystore.Repository) -> None:
    """Add three months of a model of the ocean, which has a curvilinear grid; each is written by a fork."""
    months = sorted((SAMPLES / "NEMO").glob("*.nc"))
    tos = np.concatenate([read(path, "tos") for path in months])
    session = repo.writable_session("main")
    group = zarr.create_group(session.store, path="ocean", attributes={"title": "NEMO, three months"})
    group.create_array(
        "tos", shape=tos.shape, chunks=(1, *(-(-side // 3) for side in tos.shape[1:])), dtype="f4",
        dimension_names=("month", "y", "x"), fill_value=np.nan,
        attributes={"units": "degC", "long_name": "Sea surface temperature"},
    )  # fmt: skip
    forks = [session.fork() for _ in months]
    for month, fork in enumerate(forks):
        fork.write("ocean/tos", (month,), np.where(np.abs(tos[month]) > 1e4, np.nan, tos[month]))
    session.merge(forks)
    session.commit("Add sea surface temperature of the ocean model")


def _describe(repo: arraystore.Repository, branch: str, scenario: str) -> None:
    session = repo.writable_session(branch)
    group = zarr.open_group(session.store, path="climate")
    group.attrs.update({"scenario": scenario, "title": "Air temperature over North America, 1860 to 2099"})
    session.commit(f"Describe scenario {scenario}")
