"""Run the smoke suite and pages about Spark with the PySpark of this environment, classic and over Spark Connect.

    python run.py all | INDEX/COUNT

Which pages: all of them in both modes, or a share of them, such that the runs 0/4, 1/4, 2/4 and 3/4 run each page once.
tools/run_spark_versions.py runs this as a program in an environment that has arraystore from a wheel and no test
framework, so nothing here imports `tests`.  One Java virtual machine serves both: the classic session is also the
server that the client of Spark Connect, a process of its own, talks to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted((CHECKOUT / "docs").glob("spark*.md"))
CLASSIC_ONLY = "sparkContext"
"""Blocks of pages with this word need a Spark context, which Spark Connect does not have."""
QUIET = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
}


def main() -> int:
    """Run both, the classic driver first; return the exit status."""
    share = sys.argv[1]
    if len(sys.argv) == 3:
        return run_all("Spark Connect", connect_session(sys.argv[2]), share_of_pages(share, 1))
    java = subprocess.run([CHECKOUT / "tools/find_java.sh"], capture_output=True, text=True, check=True).stdout.strip()
    os.environ |= {
        "JAVA_HOME": java,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
    with tempfile.TemporaryDirectory(prefix="arraystore-spark-", ignore_cleanup_errors=True) as directory:
        os.chdir(directory)
        port = free_port()
        spark = classic_session(port)
        failures = run_all("classic", spark, share_of_pages(share, 0))
        # The server is this very process' Java: it works in the directory that is current here.
        client = [sys.executable, __file__, share, f"sc://127.0.0.1:{port}"]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
        failures += subprocess.run(client, env=environment, check=False).returncode != 0
        spark.stop()
    return 1 if failures else 0


def classic_session(port: int) -> SparkSession:
    """Start Spark with a server of Spark Connect in it."""
    from pyspark.sql import SparkSession

    settings = QUIET | {"spark.connect.grpc.binding.port": str(port)}
    return SparkSession.builder.master("local[2,2]").appName("versions").config(map=settings).getOrCreate()


def connect_session(url: str) -> SparkSession:
    """Connect to the server."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(url).getOrCreate()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def share_of_pages(share: str, mode: int) -> list[Path]:
    """Return the pages of a share that a mode runs, which are numbered within a share."""
    if share == "all":
        return PAGES
    index, count = map(int, share.split("/"))
    return [page for number, page in enumerate(PAGES) if number % (2 * count) == 2 * index + mode]


def run_all(mode: str, spark: SparkSession, wanted: Sequence[Path]) -> int:
    """Run the smoke suite and some pages; return how many of them failed."""
    failures = 0
    for name, action in [*smoke_tests(spark), *pages(mode, wanted)]:
        place = Path(tempfile.mkdtemp(dir=os.getcwd(), prefix=f"{mode.replace(' ', '-')}-"))
        began, printed = time.perf_counter(), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                note = patiently(action, place)
        except Exception:  # noqa: BLE001 - any failure is one
            failures += 1
            print(f"FAILED {mode}: {name}\n{printed.getvalue()}{traceback.format_exc()}", flush=True)
        else:
            print(f"ok     {mode}: {name}{note or ''}, {time.perf_counter() - began:.1f} s", flush=True)
    return failures


def patiently(action: Callable[[Path], str | None], place: Path) -> str | None:
    """Call an action, again if a worker of Spark Connect was late: Spark gives it ten seconds to import PySpark."""
    for number in range(4):
        try:
            return action(new_directory(place, str(number)))
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
            print("a worker of Spark Connect was late", file=sys.stderr)
    return action(new_directory(place, "last"))


def new_directory(place: Path, name: str) -> Path:
    """Return an empty directory in another."""
    (place / name).mkdir()
    return place / name


def smoke_tests(spark: SparkSession) -> Iterator[tuple[str, Callable[[Path], str | None]]]:
    """Yield the functions of smoke.py by name, each to be called with an empty directory."""
    smoke = load("smoke", Path(__file__).with_name("smoke.py"))
    for name, function in inspect.getmembers(smoke, inspect.isfunction):
        if name.startswith("test_"):
            yield name, lambda place, function=function: function(spark, place)


def pages(mode: str, wanted: Sequence[Path]) -> Iterator[tuple[str, Callable[[Path], str | None]]]:
    """Yield pages about Spark; each works in the current directory of server and client, under names of its own."""
    examples = load("run_examples", CHECKOUT / "tools/run_examples.py")
    for page in wanted:
        yield f"docs/{page.name}", lambda place, page=page: run_page(page, mode, place, examples.blocks_of)


def run_page(page: Path, mode: str, place: Path, blocks_of: Callable[[str, str], Iterator[Any]]) -> str:
    """Run the blocks of a page in one namespace; return how many there were."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran, left = 0, []
    with contextlib.chdir(place):
        for block in blocks_of(page.read_text(encoding="utf-8"), page.name):
            if not block.runs or block.language != "python":
                continue
            if mode != "classic" and CLASSIC_ONLY in block.code:
                left.append(str(block.line))
                continue
            # Blank lines in front give tracebacks the line numbers of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
            ran += 1
    without = f" (not line {', '.join(left)}: needs a Spark context)" if left else ""
    return f": {ran} blocks{without}"


def load(name: str, path: Path) -> Any:
    """Import a file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
