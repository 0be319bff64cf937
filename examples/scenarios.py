"""One past and two futures of the climate, as two branches: SQL over both, and what differs between them.

    python examples/scenarios.py

The data are real: annual air temperature over North America, as the Met Office computed it for a scenario in which
emissions peak around 2050 (A1B) and one that aims at 2 K (E1), in the package iris-sample-data.  Until 1999 both are
the same run.  So the past is written once, on `main`; each scenario is a branch from there, and stores nothing but its
own future.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import iris_sample_data
import netCDF4
import numpy as np
import numpy.typing as npt
import zarr

import arraystore
import arraystore.spark as asp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIOS = {
    name: str(Path(iris_sample_data.path) / f"{name.upper()}_north_america.nc")
    for name in ("a1b", "e1")
}  # fmt: skip
AIR = "air_temperature"
FIRST_YEAR, SCENARIOS_FROM, YEARS = 1860, 2000, 240
PAST = slice(0, SCENARIOS_FROM - FIRST_YEAR)
FUTURE = slice(PAST.stop, YEARS)
YEARS_PER_CHUNK = 20

WARMING = """
    WITH both AS (
        SELECT 'a1b' AS scenario, * FROM a1b UNION ALL SELECT 'e1' AS scenario, * FROM e1
    ), decades AS (
        SELECT scenario,
               -- hours since 1970, in years of 360 days
               CAST(FLOOR((1970 + FLOOR(time / 8640)) / 10) AS INT) * 10 AS decade,
               SUM(air_temperature * COS(RADIANS(latitude))) / SUM(COS(RADIANS(latitude))) AS mean
        FROM both GROUP BY ALL
    )
    SELECT d.decade,
           MAX(d.mean - past.mean) FILTER (WHERE d.scenario = 'a1b') AS a1b,
           MAX(d.mean - past.mean) FILTER (WHERE d.scenario = 'e1') AS e1
    FROM decades d JOIN decades past ON past.scenario = d.scenario AND past.decade = 1990
    WHERE d.decade >= 1990 GROUP BY d.decade ORDER BY d.decade
"""
"""Means over the region, each place with the area that it stands for, against those of the 1990s."""

LARGEST = """
    SELECT a1b.latitude, a1b.longitude, AVG(a1b.air_temperature - e1.air_temperature) AS difference
    FROM a1b JOIN e1 USING (time, latitude, longitude)
    WHERE time >= 120 * 8640  -- from 2090 on
    GROUP BY a1b.latitude, a1b.longitude ORDER BY difference DESC LIMIT 1
"""


def read(path: str, name: str, region: Any = ...) -> npt.NDArray[Any]:
    """Read a variable of a source."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return np.asarray(file[name][region])


def create_arrays(store: Any) -> None:
    """The arrays of both scenarios, with their coordinates."""
    group = zarr.create_group(store)
    with netCDF4.Dataset(SCENARIOS["a1b"]) as file:
        for name in ("time", "latitude", "longitude", AIR):
            variable = file[name]
            chunks = (YEARS_PER_CHUNK, *variable.shape[1:]) if name == AIR else variable.shape
            keep = {"units", "standard_name", "calendar"} & set(variable.ncattrs())
            array = group.create_array(
                name, shape=variable.shape, chunks=chunks, dtype=variable.dtype, dimension_names=variable.dimensions,
                fill_value=np.nan, attributes={key: variable.getncattr(key) for key in keep},
            )  # fmt: skip
            if name != AIR:
                array[...] = variable[...]


def write_years(session: arraystore.Session, spark: SparkSession, source: str, years: slice) -> asp.WriteReport:
    """Have executors copy some years, as many at a time as there are in a chunk."""
    starts = range(years.start, years.stop, YEARS_PER_CHUNK)
    regions = [(slice(at, min(at + YEARS_PER_CHUNK, years.stop)),) for at in starts]
    return asp.write_regions(
        session, AIR, regions, lambda region: read(source, AIR, region), spark=spark, align="error"
    )


def bring_in(repo: arraystore.Repository, spark: SparkSession) -> None:
    """The past on main, and each future on a branch of its own."""
    session = repo.writable_session("main")
    create_arrays(session.store)
    print("main:", write_years(session, spark, SCENARIOS["a1b"], PAST))
    past = session.commit(f"The past, {FIRST_YEAR} to {SCENARIOS_FROM - 1}")
    for name, source in SCENARIOS.items():
        repo.create_branch(name, past)
        session = repo.writable_session(name)
        print(f"{name}:", write_years(session, spark, source, FUTURE))
        session.commit(f"The future according to {name.upper()}")


def warming(repo: arraystore.Repository, spark: SparkSession) -> dict[int, tuple[float, float]]:
    """Ask both branches by SQL how much warmer each decade is than the 1990s."""
    for name in SCENARIOS:
        asp.create_view(spark, name, repo, AIR, branch=name, coords="label")
    table = {row.decade: (row.a1b, row.e1) for row in spark.sql(WARMING).collect()}
    print("\ndecade     A1B      E1")
    for decade, (a1b, e1) in table.items():
        print(f"{decade}s  {a1b:+.2f} K  {e1:+.2f} K")
    (place,) = spark.sql(LARGEST).collect()
    east = (place.longitude + 180) % 360 - 180
    print(f"furthest apart in the 2090s: {place.difference:.1f} K at {place.latitude:.1f}°N {-east:.1f}°W\n")
    return table


def warming_of(values: Mapping[str, npt.NDArray[Any]]) -> dict[int, tuple[float, float]]:
    """Compute the same with numpy, from the sources."""
    latitude = np.radians(read(SCENARIOS["a1b"], "latitude").astype("f8"))
    weights = np.broadcast_to(np.cos(latitude)[:, None], next(iter(values.values())).shape[1:])
    means = {
        name: [
            np.average(air[at : at + 10].astype("f8"), axis=(1, 2), weights=weights).mean()
            for at in range(0, YEARS, 10)
        ]
        for name, air in values.items()
    }
    base = (1990 - FIRST_YEAR) // 10
    return {
        FIRST_YEAR + 10 * at: (means["a1b"][at] - means["a1b"][base], means["e1"][at] - means["e1"][base])
        for at in range(base, YEARS // 10)
    }


def check(repo: arraystore.Repository, found: Mapping[int, tuple[float, float]]) -> list[str]:
    """Compare the branches with the sources, SQL with numpy, and the difference with what was written."""
    sources = {name: read(path, AIR) for name, path in SCENARIOS.items()}
    wrong = [
        f"branch {name} does not hold what is in its source"
        for name, values in sources.items()
        if not np.array_equal(zarr.open_array(repo.readonly_session(name).store, path=AIR, mode="r")[...], values)
    ]
    expected = warming_of(sources)
    if found.keys() != expected.keys() or not np.allclose(list(found.values()), list(expected.values()), atol=1e-6):
        wrong.append(f"SQL says {dict(found)}, and numpy {expected}")
    diff = repo.diff(from_branch="a1b", to_branch="e1")
    changed = diff.updated_chunks.pop(f"/{AIR}", np.empty((0, 3)))
    years = [FIRST_YEAR + YEARS_PER_CHUNK * int(at) for at in changed[:, 0]]
    print(f"from a1b to e1, {len(changed)} of {YEARS // YEARS_PER_CHUNK} chunks differ: those from {min(years)} on")
    if sorted(years) != list(range(SCENARIOS_FROM, FIRST_YEAR + YEARS, YEARS_PER_CHUNK)) or not diff.is_empty():
        wrong.append(f"the branches differ where they should not: chunks of {years}, {diff}")
    return wrong


def main() -> int:
    """Bring in, ask, compare; 0 if all is right."""
    with tempfile.TemporaryDirectory(prefix="scenarios-") as directory:
        repo = arraystore.Repository.create(arraystore.local_filesystem_storage(directory))
        spark = asp.start_session()
        try:
            bring_in(repo, spark)
            found = warming(repo, spark)
        finally:
            spark.stop()
        wrong = check(repo, found)
    print("\n".join(wrong) if wrong else "The branches are equal to the sources, and SQL says what numpy says.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
