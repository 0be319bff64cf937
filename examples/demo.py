"""From model output to a versioned repository and back, in a minute.

Run it with ``make demo``, or ``python examples/demo.py``.  It brings real model output (from the package
iris-sample-data) into a repository in ./demo through Spark, reads everything back and compares it with the
sources value by value, travels in time, and draws a map.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import iris_sample_data
import netCDF4
from demo_check import Comparison, compare
from demo_plot import draw_warming
from rich.console import Console
from rich.table import Table

import arraystore
from arraystore._runtime.formatting import bytes_text
from arraystore.cli import main as arraystore_command
from arraystore.cli.console import make_console
from arraystore.cli.history import print_history
from arraystore.ingest import IngestReport, ingest
from arraystore.spark import start_session

OUTPUT = Path("demo")
REPOSITORY = OUTPUT / "repository"
PICTURE = OUTPUT / "warming.png"

SAMPLES = Path(iris_sample_data.path)
SCENARIOS = {"a1b": SAMPLES / "A1B_north_america.nc", "e1": SAMPLES / "E1_north_america.nc"}
MONTHS = sorted((SAMPLES / "NEMO").glob("*.nc"))


def main() -> int:
    """Run all parts; 0 if everything that was read back is what was in the sources."""
    console, began = make_console(), time.perf_counter()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    show_sources(console)
    bring_in_scenarios(console)
    months = append_months(console)
    all_equal = check_everything(console)
    show_history(console)
    travel_in_time(console, months)
    draw(console)
    show_places(console, time.perf_counter() - began)
    return 0 if all_equal else 1


def heading(console: Console, text: str) -> None:
    """Start a part."""
    console.print()
    console.rule(f"[bold]{text}", align="left", characters="─")


def plain_table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table without lines; columns of numbers stand to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left")
    return table


def show_sources(console: Console) -> None:
    """What there is to begin with."""
    heading(console, "1  Sources: model output in NetCDF")
    table = plain_table("file", "main variable", "shape", "what it is", "size", numbers=("size",))
    for path in (*SCENARIOS.values(), *MONTHS):
        with netCDF4.Dataset(path) as file:
            name = "air_temperature" if "air_temperature" in file.variables else "tos"
            variable = file[name]
            about = getattr(variable, "Model scenario", None)
            what = f"air temperature, scenario {about}" if about else "sea surface temperature, one month"
            table.add_row(path.name, name, "×".join(map(str, variable.shape)), what, bytes_text(path.stat().st_size))
    console.print(table)


def bring_in_scenarios(console: Console) -> None:
    """Two scenarios into two groups, with the command line."""
    heading(console, "2  Two emission scenarios into two groups, with the command line")
    for group, path in SCENARIOS.items():
        arguments = ["--repo", str(REPOSITORY), "--group", group, "--append-dim", "time", "--chunks", "time=60"]
        console.print(f"\n[cyan]$ arraystore ingest {path.name} {' '.join(arguments)}", soft_wrap=True)
        if arraystore_command(["ingest", str(path), *arguments]) != 0:
            raise SystemExit(1)


def append_months(console: Console) -> list[IngestReport]:
    """Ocean files as they come in: each month is appended, in a commit of its own."""
    heading(console, "3  Three months of ocean, each appended in a commit of its own, from Python")
    storage = arraystore.local_filesystem_storage(str(REPOSITORY))
    spark = start_session()
    table = plain_table(
        "file", "months", "written", "tasks", "seconds", "snapshot", numbers=("written", "tasks", "seconds")
    )
    reports: list[IngestReport] = []
    for path in MONTHS:
        report = ingest([path], storage, group="ocean", append_dim="time_counter", spark=spark)
        reports.append(report)
        sea = report.plan.array("tos")
        grown = f"{sea.start} → {sea.variable.shape[0]}"
        written, tasks = bytes_text(report.plan.nbytes), str(len(report.plan.tasks))
        table.add_row(path.name, grown, written, tasks, f"{report.seconds:.2f}", report.snapshot_id)
    console.print(table)
    return reports


def open_main() -> arraystore.Session:
    """The newest snapshot."""
    return open_repository().readonly_session("main")


def open_repository() -> arraystore.Repository:
    """The repository of this demo, opened anew: nothing is known but what is on disk."""
    return arraystore.Repository.open(arraystore.local_filesystem_storage(str(REPOSITORY)))


def check_everything(console: Console) -> bool:
    """Read all back with zarr and with xarray, and compare with what netCDF4 reads from the sources."""
    heading(console, "4  Everything read back, and compared with the sources value by value")
    began = time.perf_counter()
    store = open_main().store
    comparisons = [compare(store, group, [path], None) for group, path in SCENARIOS.items()]
    comparisons.append(compare(store, "ocean", MONTHS, "time_counter"))
    columns = ("group", "variables", "values", "raw, with zarr", "attributes", "decoded, with xarray")
    table = plain_table(*columns, numbers=("variables", "values", "attributes"))
    for found in comparisons:
        table.add_row(
            f"/{found.group}", str(found.variables), f"{found.values:,}", verdict(found, "zarr"),
            f"{found.attributes:,}", verdict(found, "xarray"),
        )  # fmt: skip
    console.print(table)
    for difference in (text for found in comparisons for text in found.differences):
        console.print(f"[red]different:[/red] {difference}")
    console.print(
        f"{sum(found.values for found in comparisons):,} values compared in {time.perf_counter() - began:.2f} s"
    )
    return not any(found.differences for found in comparisons)


def verdict(found: Comparison, reader: str) -> str:
    """One word for a table."""
    return (
        "[red]differs[/red]"
        if any(text.startswith(reader) for text in found.differences)
        else "[green]identical[/green]"
    )


def show_history(console: Console) -> None:
    """Every ingest was one commit."""
    heading(console, "5  The history of branch main")
    print_history(open_repository().ancestry(branch="main"))


def travel_in_time(console: Console, months: list[IngestReport]) -> None:
    """A snapshot stays what it was."""
    heading(console, "6  Time travel: the ocean before the last append")
    import xarray as xr

    table = plain_table("opened at", "snapshot", "months", "the series ends on", numbers=("months",))
    for what, report in (("before the last append", months[-2]), ("now", months[-1])):
        session = open_repository().readonly_session(snapshot_id=report.snapshot_id)
        ocean = xr.open_zarr(session.store, group="ocean", chunks=None)
        last = ocean["time_centered_bounds"].values[-1, 1]
        table.add_row(what, report.snapshot_id, str(ocean.sizes["time_counter"]), f"{last:%Y-%m-%d}")
    console.print(table)


def draw(console: Console) -> None:
    """A picture from what the repository holds."""
    heading(console, "7  A picture: how much warmer the last decade is than the first")
    began = time.perf_counter()
    warming = draw_warming(open_main().store, PICTURE)
    table = plain_table("scenario", "mean warming of the region", numbers=("mean warming of the region",))
    for scenario, kelvin in warming.items():
        table.add_row(scenario, f"{kelvin:+.1f} K")
    console.print(table)
    console.print(f"drawn in {time.perf_counter() - began:.2f} s")


def command_line() -> str:
    """Return what to type for the command, which is on the path only where its environment is active."""
    beside = Path(sys.executable).with_name("arraystore")
    if shutil.which("arraystore") or not beside.exists():
        return "arraystore"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def show_places(console: Console, seconds: float) -> None:
    """Where to look further."""
    heading(console, f"Done in {seconds:.0f} s. Where things are")
    files = [path for path in REPOSITORY.rglob("*") if path.is_file()]
    size = bytes_text(sum(path.stat().st_size for path in files))
    table = plain_table("what", "where")
    table.add_row("picture", str(PICTURE))
    table.add_row("repository", f"{REPOSITORY} ({len(files)} objects, {size})")
    table.add_row("its history", f"{command_line()} log {REPOSITORY}")
    table.add_row("in Python", f'arraystore.Repository.open(arraystore.local_filesystem_storage("{REPOSITORY}"))')
    table.add_row("what next", "docs/tutorial.md: from nothing to your own data")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
