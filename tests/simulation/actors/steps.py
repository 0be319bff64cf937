"""Steps of a transaction: what they do is drawn at random from what the session has."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

from tests.simulation.actors.documents import (
    Shape,
    array_document,
    chunk_key,
    document_key,
    edited,
    group_document,
    shape_of,
)
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.sources import refer
from tests.simulation.observations import Coords

__all__ = ["MOST_ITEMS", "Step", "append_unique", "grow_names", "steps"]

Step = Callable[[Hand, random.Random], Awaitable[None]]

MOST_ITEMS = 16
"""Length beyond which arrays are not made to grow."""

_NAMES = ("a", "b", "c", "d")
_DEEPEST = 3
_VALUES = 24
"""Values that must not repeat; there are few."""
_SIZES = ((8, 40), (60, 200), (60, 200), (700, 900))
"""Bytes of chunks: inlined, gathered into packs, objects of their own; the workload's configuration has the bounds."""


def steps() -> Mapping[str, Step]:
    """Return what a step may be, by name; forks and rebases, which need more than a session, are elsewhere."""
    return {
        "write": _write,
        "erase": _erase,
        "attributes": _attributes,
        "grow": _grow,
        "shrink": _shrink,
        "append": _append,
        "create": _create,
        "delete": _delete,
        "replace": _replace,
        "move": _move,
        "file": _file,
        "look": _look,
        "list": _list,
        "refer": _refer,
    }


def _any_array(hand: Hand, rng: random.Random) -> tuple[str, Shape] | None:
    arrays = hand.arrays()
    return rng.choice(list(arrays.items())) if arrays else None


def _any_chunk(hand: Hand, rng: random.Random) -> tuple[str, Coords] | None:
    found = _any_array(hand, rng)
    if found is None or 0 in found[1].grid:
        return None
    return found[0], tuple(rng.randrange(n) for n in found[1].grid)


def _bytes(hand: Hand, rng: random.Random, what: str) -> bytes:
    return hand.fresh(rng.randint(*rng.choice(_SIZES)), what)


def grow_names(above: str, rng: random.Random) -> str:
    """Return a path right below another one; there are few, so that actors collide."""
    name = rng.choice(_NAMES)
    return f"{above}/{name}" if above else name


def _vacant(hand: Hand, rng: random.Random) -> str | None:
    """Return a path below a group where nothing is, or None if the first one tried has something."""
    groups = [path for path in hand.groups() if path.count("/") < _DEEPEST - 1]
    if not groups:
        return None
    path = grow_names(rng.choice(groups), rng)
    taken = path in hand.groups() or path in hand.arrays()
    return None if taken or any(key.startswith(path + "/") for key in hand.files()) else path


# -- chunks -------------------------------------------------------------------------------------------------------


async def _write(hand: Hand, rng: random.Random) -> None:
    found = _any_chunk(hand, rng)
    if found is not None:
        await hand.write(*found, _bytes(hand, rng, f"{found[0]}{list(found[1])}"))


async def _refer(hand: Hand, rng: random.Random) -> None:
    found = _any_chunk(hand, rng)
    if found is not None:
        await refer(hand, *found, rng)


async def _erase(hand: Hand, rng: random.Random) -> None:
    found = _any_chunk(hand, rng)
    if found is not None:
        await hand.write(*found, None)


async def _look(hand: Hand, rng: random.Random) -> None:
    """Read a chunk or a document, and write another chunk according to what was there."""
    found = _any_chunk(hand, rng)
    if found is None:
        return
    path, coords = found
    key = document_key(path) if rng.random() < 0.2 else chunk_key(path, coords)
    data = await hand.get(key)
    other = _any_chunk(hand, rng)
    if other is not None and (data is None or len(data) % 3):
        await hand.write(*other, _bytes(hand, rng, f"seen {path}{list(coords)}"))


async def _list(hand: Hand, rng: random.Random) -> None:
    """List, and create or write according to what was there."""
    group = rng.choice(hand.groups() or [""])
    deep = rng.random() < 0.4
    prefix = f"{group}/" if deep and group else group
    names = await hand.list(prefix, deep)
    await (_create if len(names) < 5 else _write)(hand, rng)


# -- documents ----------------------------------------------------------------------------------------------------


async def _attributes(hand: Hand, rng: random.Random) -> None:
    paths = [*hand.groups(), *hand.arrays()]
    if not paths:
        return
    path = rng.choice(paths)
    document = await hand.get(document_key(path))
    if document is not None:
        mark = hand.fresh(0, "attribute").decode()
        await hand.update(path, edited(document, attributes={rng.choice("xy"): mark}))


async def _resized(hand: Hand, rng: random.Random, change: Callable[[int], int]) -> None:
    found = _any_array(hand, rng)
    if found is None:
        return
    document = await hand.get(document_key(found[0]))
    shape = None if document is None else shape_of(document)
    if document is None or shape is None:
        return
    axis = rng.randrange(len(shape.items))
    items = tuple(change(n) if i == axis else n for i, n in enumerate(shape.items))
    if items != shape.items:
        await hand.update(found[0], edited(document, items=items))


async def _grow(hand: Hand, rng: random.Random) -> None:
    more = rng.randint(1, 4)
    await _resized(hand, rng, lambda n: min(n + more, MOST_ITEMS))


async def _shrink(hand: Hand, rng: random.Random) -> None:
    less = rng.randint(1, 4)
    await _resized(hand, rng, lambda n: max(n - less, 0))


async def _append(hand: Hand, rng: random.Random) -> None:
    """Append as the library's own `append` does: look where the array ends, let it grow, write the new chunks."""
    found = _any_array(hand, rng)
    if found is None or hand.is_fork:
        return
    path, shape = found
    axis = 0
    if shape.items[axis] > MOST_ITEMS:
        return
    chunk = shape.chunk[axis]
    items = chunk * rng.randint(1, 2) if rng.random() < 0.85 else rng.randint(1, chunk)
    with hand.appending(shape.names[axis]):
        document = await hand.get(document_key(path), counts=False)
        if document is None:
            return
        grown = tuple(n + items if i == axis else n for i, n in enumerate(shape.items))
        first, end = -(-shape.items[axis] // chunk), -(-grown[axis] // chunk)
        rest = [0] * (len(grown) - 1)
        chunks: dict[Coords, bytes] = {}
        for number in range(first, end if 0 not in shape.grid[1:] else first):
            if rng.random() < 0.9:
                coords = (number, *rest)
                chunks[coords] = _bytes(hand, rng, f"end of {path}{list(coords)}")
        await hand.append(path, axis, edited(document, items=grown), items, chunks)


async def append_unique(hand: Hand, rng: random.Random) -> None:
    """Append one or two of few values, so that actors collide."""
    paths = hand.coordinates()
    if paths:
        await hand.append_unique(rng.choice(paths), rng.sample(range(_VALUES), rng.choice((1, 1, 2))))


# -- nodes --------------------------------------------------------------------------------------------------------


async def _create(hand: Hand, rng: random.Random) -> None:
    path = _vacant(hand, rng)
    if path is not None:
        await _make(hand, rng, path)


async def _make(hand: Hand, rng: random.Random, path: str) -> None:
    attributes = {"made": hand.fresh(0, "node").decode()}
    if rng.random() < 0.4:
        await hand.create(path, group_document(attributes))
        return
    await hand.create(path, array_document(any_shape(rng, 3), attributes))
    if rng.random() < 0.7:
        await _write(hand, rng)


def any_shape(rng: random.Random, chunks: int) -> Shape:
    """Return the shape of a small array: a line, sometimes a plane; ends are mostly those of whole chunks."""
    length = rng.choice((1, 2))
    items = length * rng.randint(0, chunks) - (rng.random() < 0.2 and length > 1)
    if rng.random() < 0.8:
        return Shape((max(0, items),), (length,), ("time",))
    return Shape((max(0, items), 2), (length, 1), ("time", "place"))


async def _delete(hand: Hand, rng: random.Random) -> None:
    paths = [path for path in [*hand.groups(), *hand.arrays()] if path]
    if len(paths) > 2:
        await hand.delete(rng.choice(paths))


async def _replace(hand: Hand, rng: random.Random) -> None:
    paths = [path for path in [*hand.groups(), *hand.arrays()] if path]
    if paths:
        path = rng.choice(paths)
        await hand.delete(path)
        await _make(hand, rng, path)


async def _move(hand: Hand, rng: random.Random) -> None:
    paths = [path for path in [*hand.groups(), *hand.arrays()] if path]
    target = _vacant(hand, rng)
    if not paths or target is None or hand.is_fork:
        return
    source = rng.choice(paths)
    if not (target + "/").startswith(source + "/"):
        hand.move(source, target)


async def _file(hand: Hand, rng: random.Random) -> None:
    group = rng.choice(hand.groups() or [""])
    key = f"{group}/note-{rng.randrange(2)}".lstrip("/")
    there = key in hand.files()
    await hand.write_file(key, None if there and rng.random() < 0.4 else _bytes(hand, rng, "file"))
