"""Rule "references": branches and tags are what their creators were told, and what others saw."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from arraystore.simulation.checker.decoding import id_text
from arraystore.simulation.checker.logs import Logs
from arraystore.simulation.checker.violations import DecodingError, Violation
from arraystore.simulation.observations import Committed, Observations, RefCreation, RefListing, RefLook, Refused

__all__ = ["wrong_references"]

_RULE = "references"
_MAIN = "main"
Named = dict[tuple[str, str], str]


def wrong_references(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Compare all branches and tags with what was done and seen."""
    there: Named = {("branch", name): id_text(branch.first.id) for name, branch in logs.branches.items()}
    for key in sorted(logs.reader.objects):
        if key.startswith("refs/tag/"):
            name = unquote(key.removeprefix("refs/tag/"))
            try:
                there["tag", name] = id_text(logs.reader.tag(name).id)
            except DecodingError as error:
                yield Violation(_RULE, error.what, error.key)
    created = [seen for seen in notes.seen if isinstance(seen, RefCreation)]
    yield from _creations(there, created)
    for seen in notes.seen:
        if isinstance(seen, RefLook):
            yield from _look(there, created, seen)
        elif isinstance(seen, RefListing):
            yield from _listing(there, created, seen)


def _creations(there: Named, created: list[RefCreation]) -> Iterator[Violation]:
    winners: dict[tuple[str, str], RefCreation] = {}
    for creation in created:
        name, where = (creation.kind, creation.name), f"{creation.kind} {creation.name!r}"
        if not isinstance(creation.outcome, Committed):
            continue
        if name in winners:
            what = f"{creation.process} and {winners[name].process} both created it"
            yield Violation(_RULE, what, where)
        winners[name] = creation
        if there.get(name) != creation.snapshot:
            what = f"{creation.process} created it at {creation.snapshot}, it is {there.get(name)}"
            yield Violation(_RULE, what, where)
    for name, snapshot in there.items():
        tried = [c for c in created if (c.kind, c.name) == name and not isinstance(c.outcome, Refused)]
        if name != ("branch", _MAIN) and not any(creation.snapshot == snapshot for creation in tried):
            yield Violation(_RULE, f"nobody created it at {snapshot}", f"{name[0]} {name[1]!r}")


def _acknowledged(created: list[RefCreation], kind: str, before: float) -> set[str]:
    return {
        c.name
        for c in created
        if c.kind == kind and isinstance(c.outcome, Committed) and c.ended is not None and c.ended < before
    }


def _look(there: Named, created: list[RefCreation], seen: RefLook) -> Iterator[Violation]:
    where = f"tag {seen.name!r}"
    if seen.snapshot is None:
        if seen.name in _acknowledged(created, "tag", seen.began):
            yield Violation(_RULE, f"{seen.process} saw none after it was created", where)
    elif there.get(("tag", seen.name)) != seen.snapshot:
        yield Violation(_RULE, f"{seen.process} saw {seen.snapshot}, it is {there.get(('tag', seen.name))}", where)


def _listing(there: Named, created: list[RefCreation], seen: RefListing) -> Iterator[Violation]:
    where = f"list of {'branches' if seen.kind == 'branch' else 'tags'} of {seen.process}"
    missing = _acknowledged(created, seen.kind, seen.began) - set(seen.names)
    if missing:
        yield Violation(_RULE, f"{sorted(missing)} had been created, and are not in it", where)
    unknown = {name for name in seen.names if (seen.kind, name) not in there}
    if unknown:
        yield Violation(_RULE, f"{sorted(unknown)} are in it, and are not there", where)
