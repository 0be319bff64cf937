"""How long the page of `arraystore ui` takes, in a browser, on 10,000 commits, 1,000 arrays and 1,000,000 chunks.

    python -m benchmarks.ui_page [--repository DIRECTORY] [--latency MILLISECONDS]

The repository is made in DIRECTORY if it is not there yet, which takes a few minutes.  A server runs in a process of
its own; a headless Chromium opens the page and clicks through it.  Times are from the click to the new content, with
what the server says that it read and the processor time that it took; the resident memory is that of the server at
the end.  Of several visits, each to a new server, the median of each step counts.  While the history scrolls, from its
first row to its last one, each frame is timed by `requestAnimationFrame`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import zarr

import arraystore
from arraystore.storage import Latency, LatencyStorage, Storage, local_filesystem_storage
from arraystore.ui.server.run import prepare

COMMITS, ARRAYS, CHUNKS = 10_000, 1_000, 1_000_000
BIG = 600_000
"""Chunks of the largest array."""


@dataclass(frozen=True)
class Step:
    """One thing that a user does."""

    name: str
    milliseconds: float
    cpu: float
    """Processor time of the server in milliseconds."""
    requests: int
    kilobytes: float


def build(path: Path) -> None:
    """Write a repository of the size of the bar."""
    repo = arraystore.Repository.create(local_filesystem_storage(path, fsync=False))
    session = repo.writable_session("main")
    sides = (600, BIG // 600)
    for number in range(ARRAYS - 1):
        group = f"group{number // 50:02d}"
        count = (CHUNKS - BIG) // (ARRAYS - 1)
        array = zarr.create_array(
            session.store, name=f"{group}/array{number:04d}", shape=(count,), chunks=(1,), dtype="f4"
        )
        session.write(array.path, ..., np.arange(count, dtype="f4"))
    zarr.create_array(session.store, name="big", shape=sides, chunks=(1, 1), dtype="f4", dimension_names=("y", "x"))
    for row in range(0, sides[0], 60):
        part = np.add.outer(np.sin(np.arange(row, row + 60) / 40), np.cos(np.arange(sides[1]) / 60)).astype("f4")
        session.write("big", (slice(row, row + 60),), part)
    session.commit("Everything")
    branches = ["main"]
    for number in range(COMMITS - 1):
        if number % 1_000 == 500:
            branches.append(f"topic/{number}")
            repo.create_branch(branches[-1], repo.lookup_branch("main"))
        branch = branches[-1] if number % 7 == 0 else "main"
        session = repo.writable_session(branch)
        session.write(f"group{number % 10:02d}/array{number % 10 * 50:04d}", (number % 400,), np.float32(number))
        session.commit(f"Commit {number}: measure station {number % 97}")
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.wait_for_maintenance()


def serve(path: Path, latency: float) -> None:
    """Run a server, and print its address."""
    storage: Storage = local_filesystem_storage(path)
    if latency:
        storage = LatencyStorage(storage, Latency(latency), Latency(latency))
        storage.cheap_probes = False
    server = prepare(storage)
    print(server.url, flush=True)
    server.run()


@contextmanager
def running(path: Path, latency: float) -> Iterator[tuple[str, int]]:
    """Run a server in another process; its address and its process id."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.ui_page",
        "--repository",
        str(path),
        "--serve",
        "--latency",
        str(latency),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait(10)


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Frames:
    """Times between frames while a list scrolls, in milliseconds."""

    count: int
    seconds: float
    median: float
    p99: float
    worst: float
    dropped: int
    """Frames of a display with 60 of them a second for which nothing new was drawn."""

    @classmethod
    def of(cls, times: list[float]) -> Frames:
        """Return the figures of times at which frames were drawn."""
        spans = np.diff(times)
        missed = np.maximum(np.round(spans / (1000 / 60)) - 1, 0)
        return cls(
            len(spans), float(spans.sum() / 1000), float(np.median(spans)), float(np.percentile(spans, 99)),
            float(spans.max()), int(missed.sum()),
        )  # fmt: skip


def measure(url: str, pid: int, executable: str) -> tuple[list[Step], Frames]:
    """Open the page and click through it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        # Playwright waits for a condition by `eval`, which the policy of the page forbids.
        context = browser.new_context(viewport={"width": 1360, "height": 860}, bypass_csp=True)
        page = context.new_page()
        page.goto("about:blank")
        steps = list(Visit(page, pid).steps(url))
        frames = Frames.of(page.evaluate(FRAMES))
        browser.close()
    return steps, frames


class Visit:
    """One visit to the page."""

    def __init__(self, page: Any, pid: int) -> None:
        self.page = page
        self.pid = pid
        self.costs: list[dict[str, Any]] = []
        page.on("requestfinished", self._noted)

    def _noted(self, request: Any) -> None:
        if "/api/" in request.url:
            self.costs.append(request.response().json()["cost"])

    def step(self, name: str, act: Callable[[], Any], ready: str) -> Step:
        """Do something, and wait until a condition holds."""
        self.costs.clear()
        began, used = time.perf_counter(), cpu_seconds(self.pid)
        act()
        self.page.wait_for_function(ready, polling=10)
        seconds = time.perf_counter() - began
        self.page.wait_for_load_state("networkidle")
        requests, kilobytes = (sum(each[what] for each in self.costs) for what in ("requests", "bytes"))
        return Step(name, 1000 * seconds, 1000 * (cpu_seconds(self.pid) - used), requests, kilobytes / 1024)

    def click(self, name: str, selector: str, ready: str, nth: int = 0) -> Step:
        """Click on something."""
        target = self.page.locator(selector).nth(nth)
        return self.step(name, target.click, ready)

    def steps(self, url: str) -> Iterator[Step]:
        """Do what a visitor does."""
        rows = "document.querySelectorAll('.virtual-row').length > 5"
        yield self.step("first paint: the history", lambda: self.page.goto(url, wait_until="commit"), rows)
        self.page.wait_for_function(f"{text('.bar .hint')}.startsWith('10,0')", timeout=60_000)
        yield self.click(
            "a snapshot and its changes", ".virtual-row:visible", "document.querySelector('.changes a') !== null", 9
        )
        found = f"/^10[0-9] /.test({text('.bar .hint')})"
        yield self.step("search", lambda: self.page.fill("#search", "station 42"), found)
        yield self.click("data: the tree and the largest array", "[data-view=data]", drawn("big"))
        yield self.click("an array", ".tree .virtual-row:visible", drawn("array0"), 9)
        self.page.fill(".tree input", "big")
        self.page.wait_for_timeout(400)
        mapped = f"{text('.chunks .numbers')}.startsWith('600,000') && {drawn('big')}"
        yield self.click("an array with a map of 600,000 chunks", ".tree .virtual-row:visible", mapped)
        pressed = "document.querySelector('[data-mode=time]').getAttribute('aria-pressed') === 'true'"
        yield self.click("the map by age", "[data-mode=time]", pressed)
        at = self.page.evaluate("location.hash")
        moved = f"location.hash !== {json.dumps(at)} && {drawn('big')}"
        yield self.click("travel to the snapshot before", ".timeline .step", moved)
        compared = "document.querySelector('.values .numbers')?.textContent.length > 3"
        yield self.click("compare the newest snapshot with its parent", "[data-view=compare]", compared)
        yield self.click("storage", "[data-view=storage]", "document.querySelector('.tile') !== null")
        yield self.click("back to the history", "[data-view=history]", rows)


def text(selector: str) -> str:
    """Return an expression for the text of an element."""
    return f"(document.querySelector({json.dumps(selector)})?.textContent ?? '')"


def drawn(name: str) -> str:
    """Return a condition: an array is shown with its values and chunks."""
    parts = f"{text('.values .numbers')} !== '' && {text('.chunks .numbers')} !== ''"
    return f"{text('.crumbs a:last-child')}.startsWith({json.dumps(name)}) && {parts}"


FRAMES = """() => new Promise(done => {
    const list = document.querySelector('.virtual');
    const times = [];
    const by = (list.scrollHeight - list.clientHeight) / 300;
    list.scrollTop = 0;
    const step = now => {
        times.push(now);
        list.scrollTop = by * times.length;
        if (times.length > 300) done(times);
        else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""
"""Scrolls through all commits in 300 frames, and tells when each was drawn."""


def median(visits: list[list[Step]]) -> list[Step]:
    """Return the median of each step."""
    return [
        Step(steps[0].name, *(statistics.median(getattr(step, what) for step in steps) for what in NUMBERS))
        for steps in zip(*visits, strict=True)
    ]


NUMBERS = ("milliseconds", "cpu", "requests", "kilobytes")


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path(gettempdir()) / "arraystore-ui-page")
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds of each request")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.repository, chosen.latency / 1000)
        return 0
    if not chosen.repository.exists():
        build(chosen.repository)
    visits, frames, memory = list[list[Step]](), list[Frames](), list[float]()
    for _ in range(chosen.visits):
        with running(chosen.repository, chosen.latency) as (url, pid):
            steps, drawn_ = measure(url, pid, chosen.chromium)
            memory.append(resident(pid))
        visits.append(steps)
        frames.append(drawn_)
    print("| step | ms | server's CPU, ms | requests | kB |\n| --- | ---: | ---: | ---: | ---: |")
    for step in median(visits):
        numbers = f"{step.milliseconds:,.0f} | {step.cpu:,.0f} | {step.requests:,.0f} | {step.kilobytes:,.0f}"
        print(f"| {step.name} | {numbers} |")
    print(f"\nresident memory of the server: {max(memory):.0f} MiB")
    best = min(frames, key=lambda each: each.dropped)
    print(
        f"scrolling 10,000 commits: {best.count} frames in {best.seconds:.2f} s, median {best.median:.1f} ms, "
        f"p99 {best.p99:.1f} ms, worst {best.worst:.1f} ms, {best.dropped} dropped"
    )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
