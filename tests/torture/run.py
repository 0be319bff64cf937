"""Everything at once: processes that write, read, expire, compact and collect, faults, kills, stops, and wrong clocks.

    python -m tests.torture.run --minutes 20 --place directory|s3 --seed 1

Each actor is a process that works until it is killed, at any moment, and another one takes its place; others are
stopped for a while and go on.  Clocks differ by up to a day.  A directory fails, is slow, comes back short, and denies
writes that were made; an S3 server is behind `tests.faultproxy`.  Writers note durably what they are about to commit,
and what was acknowledged; in the end `torture_check` compares these journals with what the repository holds.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from arraystore import Repository, local_filesystem_storage
from arraystore._runtime import run
from tests.faultproxy import LATEST, running_proxy
from tests.s3server import S3Server, open_run, running_server
from tests.torture.actors import act, create
from tests.torture.check import Outcome, check_all
from tests.torture.places import CONFIG, DAY, Place

__all__ = ["CLOCKS", "FEW", "MANY", "RATE", "RIGHT", "Outcome", "directory_place", "s3_place", "torture"]

Part = tuple[str, int]

MANY: tuple[Part, ...] = (
    *[("write", number) for number in range(4)],
    *[("branch", number) for number in range(2)],
    *[("collect", 0), ("compact", 0), ("expire", 0), ("read", 0), ("read through faults", 0)],
)
FEW: tuple[Part, ...] = (
    *[("write", 0), ("write", 1), ("branch", 0)],
    *[("collect", 0), ("compact", 0), ("expire", 0), ("read", 0)],
)
"""For a short slice on a busy machine."""

RATE = 0.03
"""Share of requests that something happens to."""

_STOPS = (0.05, 0.5, 2.0, 4.0, 25.0)
"""Seconds for which a process is stopped: some longer than the pause after which a writer looks at the log again."""

CLOCKS = (0.0, 0.0, DAY, -DAY)
"""Seconds by which the clock of a process may be ahead; each is drawn as often as it is here."""

RIGHT = (0.0,)


@dataclass
class _Crew:
    """The processes of a torture.

    Parameters
    ----------
    place
        Where they work.
    parts
        Who is to be there.
    chance
        Draws whom something happens to.
    clocks
        Seconds by which clocks may be ahead.
    """

    place: Place
    parts: tuple[Part, ...]
    chance: random.Random
    clocks: tuple[float, ...]
    running: dict[Part, BaseProcess] = field(default_factory=dict[Part, BaseProcess])
    stopped: dict[Part, float] = field(default_factory=dict[Part, float])
    counts: Counter[str] = field(default_factory=Counter[str])

    def fill(self) -> None:
        """Start whoever is not there, and let those go on that were stopped for long enough."""
        for part in self.parts:
            if part not in self.running or not self.running[part].is_alive():
                self.running[part] = self._started(part)
                self.stopped.pop(part, None)
        for part in [part for part, until in self.stopped.items() if until <= time.monotonic()]:
            del self.stopped[part]
            self._signal(part, signal.SIGCONT)

    def _started(self, part: Part) -> BaseProcess:
        seed, ahead = self.chance.getrandbits(32), self.chance.choice(self.clocks)
        process: BaseProcess = _context().Process(target=act, args=(*part, seed, ahead, self.place), daemon=True)
        process.start()
        return process

    def strike(self) -> None:
        """Kill somebody, or stop somebody for a while."""
        part = self.chance.choice(self.parts)
        if part not in self.stopped and self.chance.random() < 0.4:
            self.stopped[part] = time.monotonic() + self.chance.choice(_STOPS)
            self._signal(part, signal.SIGSTOP)
            self.counts["stops"] += 1
        else:
            self._signal(part, signal.SIGKILL)
            self.running[part].join()
            self.counts["kills"] += 1

    def _signal(self, part: Part, number: signal.Signals) -> None:
        process = self.running[part]
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, number)

    def end(self) -> None:
        """Kill everybody."""
        for process in self.running.values():
            process.kill()
            process.join()


def _context() -> Any:
    """Return how processes are started: from one that has imported everything, since they are killed all the time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torture.actors"])
    return context


def torture(
    place: Place,
    seconds: float,
    seed: int = 0,
    parts: tuple[Part, ...] = MANY,
    clocks: tuple[float, ...] = CLOCKS,
    told: Callable[[str], None] = lambda what: None,
) -> Outcome:
    """Torture a new repository for some time, then check it."""
    place.journals.mkdir(parents=True, exist_ok=True)
    writers = 1 + max(number for name, number in parts if name == "write")
    create(Repository.create(place.open_directly(), config=CONFIG), writers)
    crew = _Crew(place, parts, random.Random(seed), clocks)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            crew.fill()
            time.sleep(min(crew.chance.random() * 2, max(0.0, end - time.monotonic())))
            crew.strike()
    finally:
        crew.end()
    time.sleep(0 if "path" in place.storage else LATEST)
    outcome = check_all(place, seed, told)
    outcome.counts.update(crew.counts)
    return outcome


# -- places -----------------------------------------------------------------------------------------------------------


def directory_place(directory: Path, rate: float = RATE) -> Place:
    """Return a place in a directory that fails now and then."""
    return Place({"path": str(directory / "repository")}, directory / "journals", rate)


@contextlib.contextmanager
def s3_place(server: S3Server, directory: Path, seed: int, rate: float = RATE) -> Iterator[tuple[Place, Counter[str]]]:
    """Run a proxy in front of a server; yields a place behind it, and what the proxy has done once the block ends."""
    direct = {
        "bucket": server.new_bucket("torture"),
        "endpoint_url": server.endpoint_url,
        "allow_http": True,
        "force_path_style": True,
        "region": server.region,
        "access_key_id": server.access_key_id,
        "secret_access_key": server.secret_access_key,
    }
    counts: Counter[str] = Counter()
    with running_proxy(server.endpoint_url, seed, rate) as proxy:
        storage = direct | {"endpoint_url": proxy.url}
        yield Place(storage, directory / "journals", direct=(("endpoint_url", server.endpoint_url),)), counts
        counts.update(proxy.stop())


async def _kept(place: Place, directory: Path) -> None:
    """Copy what is in a bucket to where it can be looked at."""
    source, copy = place.open_directly(), local_filesystem_storage(directory / "repository")
    async for page in source.list(""):
        for info in page:
            await copy.put(info.key, await source.get(info.key))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Torture a repository with processes.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--place", choices=["directory", "s3"], default="directory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=RATE, help="share of requests that something happens to")
    parser.add_argument("--few", action="store_true", help="fewer processes, for a busy machine")
    parser.add_argument("--keep", type=Path, help="a new directory for repository and journals, which stay")
    parser.add_argument("--right-clocks", action="store_true", help="let no clock be ahead or behind")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        counts: Counter[str] = Counter()
        if options.place == "s3":
            stack.enter_context(open_run())
            server = stack.enter_context(running_server())
            place, counts = stack.enter_context(s3_place(server, directory, options.seed, options.rate))
        else:
            place = directory_place(directory, options.rate)
        crew = FEW if options.few else MANY
        clocks = RIGHT if options.right_clocks else CLOCKS
        outcome = torture(place, options.minutes * 60, options.seed, crew, clocks, _tell)
        if options.keep and options.place == "s3":
            run(_kept(place, options.keep))
    for line in [
        f"seed {options.seed}, {options.place}, {options.minutes} minutes",
        *[f"{what}: {times}" for what, times in sorted((outcome.counts + counts).items())],
        *[f"PROBLEM: {problem}" for problem in outcome.problems[:50]],
        f"{len(outcome.problems)} problems",
    ]:
        _tell(line)
    sys.exit(bool(outcome.problems))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
