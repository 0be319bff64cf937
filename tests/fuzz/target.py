"""What is fuzzed: something that reads bytes or text of unknown origin, and what it promises."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from types import TracebackType
from typing import Any

from arraystore.errors import FormatError
from tests.fuzz.mutate import Trees, change_body, change_bytes, envelope, open_envelope, unpack

__all__ = ["BrokenPromiseError", "Outcome", "Target", "body_trees", "change_object"]

MiB = 1 << 20

CPU_SECONDS = 4.0
"""Far more than any small input takes on a busy machine, far less than one that makes a decoder allocate or search."""

MOST_MEMORY = 128 * MiB
"""What docs/format.md promises of a small object; larger ones may take 16 times their size more."""


class BrokenPromiseError(AssertionError):
    """An input on which a target does not keep its promise."""


@dataclass(frozen=True)
class Outcome:
    """What came of an input.

    Parameters
    ----------
    accepted
        Whether it was a valid value.
    where
        What tells it from others: the lines at which it was refused, or the kind of value.
    """

    accepted: bool
    where: tuple[Any, ...]


@dataclass
class Target:
    """Something that reads input from anywhere.

    Parameters
    ----------
    name
        Of the target; its corpus has this name too.
    seeds
        Valid inputs.
    decode
        Reads an input: gives a value, or raises one of `refusals`.
    encode
        Writes a value again; what it gives must decode to the same.  None where nothing writes such values.
    same
        What of a value is compared.
    use
        Does what readers do with a value; may refuse it, as decoding may.
    change
        Changes an input.
    refusals
        Errors that are answers.  All others break the promise.
    measured
        Whether decoding is bounded in memory as docs/format.md says.
    """

    name: str
    seeds: Sequence[bytes]
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None = None
    same: Callable[[Any], Any] = repr
    use: Callable[[Any], Any] = lambda value: None
    change: Callable[[Random, bytes, Target], bytes] = lambda rng, data, target: change_bytes(rng, data, target.seeds)
    refusals: tuple[type[Exception], ...] = (FormatError,)
    measured: bool = True
    kinds: set[Any] = field(default_factory=set)

    @cached_property
    def trees(self) -> Trees:
        """Parts of the values in the seeds."""
        return body_trees(self.seeds)

    def check(self, data: bytes, *, memory: bool = False) -> Outcome:
        """Try one input.

        Raises
        ------
        BrokenPromiseError
            If another error came than a refusal, if what was accepted does not survive being written and read, or if
            it took more time or memory than such an input may.
        """
        began = time.process_time()
        try:
            outcome = self._measured(data) if memory and self.measured else self._tried(data)
        except BrokenPromiseError:
            raise
        except Exception as error:
            raise BrokenPromiseError(f"{self.name}: {type(error).__name__}: {str(error)[:300]}") from error
        seconds = time.process_time() - began
        if seconds > CPU_SECONDS * (4 if memory else 1):
            raise BrokenPromiseError(f"{self.name}: took {seconds:.1f} s of one core")
        return outcome

    def _tried(self, data: bytes) -> Outcome:
        try:
            value = self.decode(data)
            self.use(value)
        except self.refusals as error:
            return Outcome(False, _lines(error.__traceback__))
        if self.encode is not None:
            again = self.decode(self.encode(value))
            if self.same(again) != self.same(value):
                raise BrokenPromiseError(f"{self.name}: what was read is written as something else")
        return Outcome(True, (type(value).__name__, _shape(value)))

    def _measured(self, data: bytes) -> Outcome:
        tracemalloc.start()
        try:
            try:
                value = self.decode(data)
            except self.refusals as error:
                outcome = Outcome(False, _lines(error.__traceback__))
            else:
                outcome = Outcome(True, (type(value).__name__, _shape(value)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak > MOST_MEMORY + 16 * len(data):
            raise BrokenPromiseError(f"{self.name}: {len(data)} bytes took {peak >> 20} MiB to read")
        return outcome


def _lines(traceback: TracebackType | None) -> tuple[Any, ...]:
    found: list[Any] = []
    while traceback is not None:
        found.append((traceback.tb_frame.f_code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return tuple(found[2:])


def _shape(value: Any) -> Any:
    """Return a coarse form of a value: how many parts of which types."""
    if isinstance(value, tuple | list | set | dict | str | bytes):
        return (type(value).__name__, len(value).bit_length())
    fields = getattr(value, "__dict__", None)
    if fields is None:
        return type(value).__name__
    return tuple([_shape(part) if not hasattr(part, "__dict__") else type(part).__name__ for part in fields.values()])


def body_trees(seeds: Sequence[bytes]) -> Trees:
    """Return the parts of the values in objects, or in bodies."""
    found: list[Any] = []
    for seed in seeds:
        opened = open_envelope(seed)
        try:
            found.append(unpack(seed if opened is None else opened[1]))
        except ValueError:
            continue
    return Trees(found)


def change_object(rng: Random, data: bytes, target: Target) -> bytes:
    """Change what is in an object and seal it again, so that its checksum is right; seldom the envelope itself."""
    opened = open_envelope(data)
    if opened is None:
        return change_bytes(rng, data, target.seeds)
    kind, body = opened
    if rng.random() < 0.05:
        return change_bytes(rng, data, target.seeds)
    if rng.random() < 0.03:
        size = rng.choice((0, len(body) + 1, 1 << 16, 1 << 24, (1 << 32) - 1))
        return envelope(kind, body, codec=rng.choice((0, 1, 2)), size=size)
    return envelope(kind, change_body(rng, body, target.trees), codec=rng.choice((0, 0, 0, 1)))
