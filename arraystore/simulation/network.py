"""Between a process and the bucket: when requests take effect, when they are answered, and what befalls them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.simulation.bucket import HINTS, Bucket
from arraystore.simulation.faults import Faults
from arraystore.simulation.latency import Latencies
from arraystore.simulation.loop import DEAD, Owner, SimulatedLoop
from arraystore.simulation.trace import Trace

__all__ = ["CHANGING", "CONDITIONAL", "Network", "Request", "Sender", "TimedNetwork"]

CHANGING = frozenset({"put", "put_if_absent", "put_new", "delete"})
"""Operations that change objects."""

CONDITIONAL = frozenset({"put_if_absent", "put_new"})
"""Operations that are refused where there is an object."""


class Sender(Owner):
    """Sender of requests."""

    __slots__ = ("chance",)

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name)
        self.chance = chance


@dataclass(eq=False, repr=False, slots=True)
class Request:
    """Request from a sender, with its effect on the bucket (`act`), which returns the answer."""

    sender: Sender
    operation: str
    key: str
    size: int
    act: Callable[..., Any]
    args: tuple[Any, ...]
    future: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Request {self.sender.name}: {self.operation} {self.key}>"

    def take_effect(self) -> str:
        """Take effect once; returns the outcome."""
        try:
            value = self.value = self.act(*self.args)
        except ObjectNotFoundError as error:
            self.error = error
            return "missing"
        except StorageError as error:
            self.error = error
            return "refused"
        return value if isinstance(value, str) else "read"

    def answer(self) -> None:
        """Return the answer to the sender."""
        if not self.future.done():
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.value)

    def fail(self, error: StorageError) -> None:
        """Give up waiting."""
        if not self.future.done():
            self.future.set_exception(error)


class Network(Protocol):
    """Carries requests."""

    def send(self, request: Request) -> None:
        """Take a request: see to its effect and to its answer, some time."""
        ...


class TimedNetwork:
    """Network with latencies from a model, and faults."""

    def __init__(self, loop: SimulatedLoop, bucket: Bucket, latencies: Latencies, faults: Faults, trace: Trace) -> None:
        self._loop = loop
        self._bucket = bucket
        self._latencies = latencies
        self._faults = faults
        self._trace = trace
        self._faulty = faults.of_requests
        self._rates = (
            *(faults.lost, faults.unacknowledged, faults.late, faults.throttled, faults.duplicated),
            *(faults.refused, faults.failed, faults.repeated, faults.broken),
        )

    def send(self, request: Request) -> None:
        """Take a request."""
        rng = request.sender.chance
        total = self._latencies.draw(request.operation, request.size, rng)
        before = total * rng.random()
        now = self._loop.time()
        if self._faulty and now < self._faults.until:
            self._send_faulty(request, rng, now, before, total)
        else:
            self._loop.at(now + before, self._arrive, request, total - before)

    def _arrive(self, request: Request, rest: float) -> None:
        if self._take_effect(request):
            self._loop.at(self._loop.time() + rest, request.answer)

    def _take_effect(self, request: Request, how: str = "") -> bool:
        """Let a request take effect; what a dead process has sent may have got stuck."""
        sender = request.sender
        if sender.state == DEAD and sender.chance.random() < 0.5:
            self._note(request, "lost with it")
            return False
        self._note(request, request.take_effect() + how)
        return True

    def _note(self, request: Request, effect: str) -> None:
        self._trace.note(self._loop.time(), request.sender.name, request.operation, request.key, effect)

    # -- faults -------------------------------------------------------------------------------------------------

    def _send_faulty(self, request: Request, rng: random.Random, now: float, before: float, total: float) -> None:
        at, faults = self._loop.at, self._faults
        fate = _drawn(self._rates, rng.random())
        if fate is None:
            self._send_odd(request, rng, now, before, total)
            return
        given_up = now + faults.timeout
        if fate == 0:
            at(now + before, self._note, request, "lost")
            at(given_up, self._time_out, request)
        elif fate == 1:
            at(now + before, self._take_effect, request, ", unacknowledged")
            at(given_up, self._time_out, request)
        elif fate == 2:
            at(given_up, self._time_out, request)
            at(given_up + faults.lateness * rng.random(), self._take_effect, request, ", too late")
        elif fate == 3:
            at(now + total, self._refuse, request, "throttled", "was refused, on purpose: 503 Slow Down")
        elif fate == 4:
            at(now + before, self._arrive, request, total - before)
            if request.operation in CHANGING:
                at(now + before + faults.lateness * rng.random(), self._repeat, request)
        elif fate == 5:
            at(now + before, self._arrive_refused, request, total - before)
        elif fate == 6:
            at(now + before, self._take_effect, request, ", failed")
            at(now + total, self._refuse, request, "500", "failed, on purpose: 500 Internal Server Error")
        elif fate == 8:
            at(now + total, self._refuse, request, "broken", "failed, on purpose: I/O error")
        else:
            again = before + faults.lateness * rng.random()
            at(now + before, self._take_effect, request, ", unanswered")
            at(now + again, self._arrive_refused, request, total - before)
            if again > faults.timeout:
                at(given_up, self._time_out, request)

    def _send_odd(self, request: Request, rng: random.Random, now: float, before: float, total: float) -> None:
        faults = self._faults
        if request.operation == "get" and request.key.startswith(HINTS) and rng.random() < faults.stale_hints:
            request.act, request.args = self._bucket.get_stale, (request.key, rng)
        elif request.operation == "list" and rng.random() < faults.slow_listings:
            before, total = 0.0, total + faults.lateness * rng.random()
        elif request.operation == "list" and faults.late_listings:
            request.act = self._bucket.list_late
            request.args = (*request.args, faults.late_listings * rng.random())
        elif request.operation in ("get", "get_ranges") and rng.random() < faults.short:
            why = "was cut short, on purpose: fewer bytes came than were announced"
            self._loop.at(now + total, self._refuse, request, "cut short", why)
            return
        self._loop.at(now + before, self._arrive, request, total - before)

    def _time_out(self, request: Request) -> None:
        self._note(request, "timed out")
        request.fail(
            StorageError(
                f"{self._bucket.location}: no answer to {request.operation} of {request.key!r} within "
                f"{self._faults.timeout} s, on purpose"
            )
        )

    def _arrive_refused(self, request: Request, rest: float) -> None:
        """Let a request take effect, and answer as if it had before: something on the way has sent it twice."""
        if self._take_effect(request):
            if request.operation in CONDITIONAL:
                request.value = "exists"
            self._loop.at(self._loop.time() + rest, request.answer)

    def _refuse(self, request: Request, noted: str, what: str) -> None:
        """Let a request end with an error."""
        self._note(request, noted)
        request.fail(StorageError(f"{self._bucket.location}: {request.operation} of {request.key!r} {what}"))

    def _repeat(self, request: Request) -> None:
        """Let a request take effect once more; its answer is the first one's."""
        self._note(request, replace(request).take_effect() + ", again")


def _drawn(rates: tuple[float, ...], draw: float) -> int | None:
    """Return which of some events of given probabilities a number from [0, 1) stands for."""
    for number, rate in enumerate(rates):
        if draw < rate:
            return number
        draw -= rate
    return None
