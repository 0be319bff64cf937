"""Rule "retention": what is kept can be read, whatever is collected; what is not kept does not stay forever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from urllib.parse import unquote

from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.lifetimes import Lifetimes
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.repository import COLLECTED
from tests.simulation.checker.retained import Held, Need, needs_of, packs_of
from tests.simulation.checker.violations import DecodingError, Violation
from tests.simulation.observations import Committed, Missing, Observations, Refused, Transaction, Upkeep

__all__ = ["leaks", "missed", "taken_away"]

_RULE = "retention"
_KINDS = ("chunks", "manifests", "snapshots", "transactions")
_LAST = "latecomer"


def taken_away(lifetimes: Lifetimes, objects: Mapping[str, bytes]) -> Iterator[Violation]:
    """Find what was deleted although something kept needs it, then or later."""
    for need, (until, what) in lifetimes.needed_until.items():
        lost = _lost(lifetimes, objects, need)
        if lost < until:
            when = "in the end" if until == inf else f"until {until:.3f}"
            yield Violation(_RULE, f"it was deleted at {lost:.3f}, and {what} needs it {when}", need[0])


def _lost(lifetimes: Lifetimes, objects: Mapping[str, bytes], need: Need) -> float:
    """Return when nothing was left of what is needed; never, mostly."""
    key, other = need
    deleted = lifetimes.moments.deleted
    gone = deleted.get(key, [inf] if key in objects else [-inf])[0]
    if gone == inf or not other:
        return gone
    since = lifetimes.moments.since(other)
    if since is None or since > gone:
        return gone if since is not None or other not in objects else inf
    return deleted.get(other, [inf])[0]


def missed(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check everybody who was told that something is not there, or has come too late."""
    for seen in notes.seen:
        if isinstance(seen, Missing) and not (
            seen.error == "SessionExpiredError" and _own_loss(logs, notes, lifetimes, seen)
        ):
            yield from _missing(logs, lifetimes, seen)
    for transaction in notes.transactions.values():
        if isinstance(transaction.outcome, Refused):
            yield from _late(logs, lifetimes, transaction, transaction.outcome.error)
    yield from _expired(logs, notes, lifetimes)


def _own_loss(logs: Logs, notes: Observations, lifetimes: Lifetimes, seen: Missing) -> bool:
    """Tell whether a session may have missed what it wrote itself, before a fence that came while it was open."""
    for label, one in notes.transactions.items():
        wrote = (one.process == seen.process and one.operations) or seen.process.startswith(f"{label}-h")
        if wrote and one.base == seen.name and seen.kind == "snapshot":
            log = logs.branches.get(one.branch)
            times = [] if log is None else lifetimes.times(one.branch)
            for number in range(1, len(times)):
                rose = log is not None and log.lives[number].fence > log.lives[number - 1].fence
                if rose and one.began <= times[number] <= seen.ended:
                    return True
    return False


def _missing(logs: Logs, lifetimes: Lifetimes, seen: Missing) -> Iterator[Violation]:
    if seen.kind == "snapshot":
        if seen.error in ("ObjectNotFoundError", "SessionExpiredError"):  # which tells nobody what to do, or is untrue
            yield Violation(_RULE, f"{seen.process} got {seen.error} at {seen.ended:.3f}", f"snapshot {seen.name}")
            return
        lapsed = lifetimes.lapsed.get(id_bytes(seen.name), inf)
        if lapsed > seen.ended and not lifetimes.may_be_unlisted(seen.name, seen.began):
            what = f"{seen.process} got {seen.error} at {seen.ended:.3f}, and it is kept" + (
                "" if lapsed == inf else f" until {lapsed:.3f}"
            )
            yield Violation(_RULE, what, f"snapshot {seen.name}")
        return
    moved = _moves(logs, lifetimes, seen.name)
    if seen.error == "RefNotFoundError":
        moved = [(at, deletes) for at, deletes in moved if deletes]
        fits = any(at <= seen.ended for at, _ in moved)
    else:
        fits = any(seen.began <= at <= seen.ended for at, _ in moved)
    if not fits:
        what = f"{seen.process} got {seen.error} at {seen.ended:.3f}, and it was there all the time"
        yield Violation(_RULE, what, f"branch {seen.name!r}")


def _moves(logs: Logs, lifetimes: Lifetimes, branch: str) -> list[tuple[float, bool]]:
    """Return when a branch was deleted or reset, and which of these."""
    found = [
        (lifetimes.since_entry(entry.number), True)
        for entry in lifetimes.refs.entries
        if entry.ref == ("branch", branch) and not entry.creates
    ]
    log = logs.branches.get(branch)
    if log is not None:
        times = lifetimes.times(branch)
        found += [(times[era.number], False) for era in log.eras[1:]]
        found += [(times[number], True) for number in log.ends()]
    return found


def _late(logs: Logs, lifetimes: Lifetimes, transaction: Transaction, error: str) -> Iterator[Violation]:
    """Check refusals that come of fences, of a closed repository, and of deleted branches."""
    log = logs.branches.get(transaction.branch)
    ended = transaction.attempts[-1].ended if transaction.attempts else None
    if log is None or ended is None or error not in ("SessionExpiredError", "ReadOnlyError", "RefNotFoundError"):
        return
    times = lifetimes.times(transaction.branch)
    opened = transaction.began - lifetimes.lag
    for number in range(1, len(log.lives)):
        life, before = log.lives[number], log.lives[number - 1]
        if times[number] > ended:
            break
        if error == "SessionExpiredError" and life.fence > before.fence and times[number] >= opened:
            return
        if error == "ReadOnlyError" and life.read_only:
            return
        if error == "RefNotFoundError" and life.deleted:
            return
    if error == "RefNotFoundError" and any(
        deletes and at <= ended for at, deletes in _moves(logs, lifetimes, log.name)
    ):
        return
    if error == "ReadOnlyError" and _closed(lifetimes, transaction.attempts[-1].began - lifetimes.lag, ended):
        return
    if error == "SessionExpiredError" and _may_lose_base(lifetimes, transaction, ended):
        return
    yield Violation(_RULE, f"it was refused with {error}, for which there is no reason", transaction.label)


def _may_lose_base(lifetimes: Lifetimes, transaction: Transaction, ended: float) -> bool:
    """Tell whether what a flush takes from its base may have been collected: what its branch does not show, may be."""
    if not transaction.flushes:
        return False
    opened = transaction.began - lifetimes.lag
    moved = any(opened <= at <= ended for at, _ in _moves(lifetimes.logs, lifetimes, transaction.branch))
    gone = id_bytes(transaction.base) not in lifetimes.at(ended).shown
    return moved or gone or _was_collected(lifetimes, transaction, ended)


def _was_collected(lifetimes: Lifetimes, transaction: Transaction, ended: float) -> bool:
    """Tell whether a collection had begun that the branch did not know of yet when a session was opened."""
    log = lifetimes.logs.branches[transaction.branch]
    known = log.lives[lifetimes.newest(transaction.branch, transaction.began - lifetimes.lag)].fence
    return lifetimes.table(ended).watermark > known


def _closed(lifetimes: Lifetimes, began: float, ended: float) -> bool:
    """Tell whether the repository log said at some time between two moments that nothing may be committed."""
    closed, found = False, False
    for entry in lifetimes.refs.entries:
        at = lifetimes.since_entry(entry.number)
        if at > ended:
            break
        found |= closed and at >= began
        closed = closed if entry.closes is None else entry.closes
    return closed or found


def _expired(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check that nothing expires but what somebody let expire."""
    asked = [seen for seen in notes.seen if isinstance(seen, Upkeep) and seen.what == "expire"]
    for one in asked:
        yield from _told_in_vain(lifetimes, one)
    for name, log in logs.branches.items():
        times = lifetimes.times(name)
        for number in range(1, len(log.lives)):
            life, before = log.lives[number], log.lives[number - 1]
            if (life.expired, life.survivors) == (before.expired, before.survivors):
                continue
            left: set[bytes] = set()
            if life.survivors is not None:
                left = {row.id for row in logs.reader.survivors(name, life.survivors)[1]}
            gone = [c.after for c in log.commits if before.expired < c.number <= life.expired and c.id not in left]
            at = times[number]
            shown = lifetimes.at(at - 1e-9)
            for snapshot in gone:
                causes = [one for one in asked if one.began <= at and snapshot.time < one.older_than]
                where = f"snapshot {id_text(snapshot.id)}"
                if snapshot.id in shown.shown and not causes:
                    yield Violation(_RULE, f"record {number} of {name!r} lets it expire, which nobody asked for", where)
                yield from _still_named(lifetimes, shown, snapshot.id, causes, at, where)


def _told_in_vain(lifetimes: Lifetimes, seen: Upkeep) -> Iterator[Violation]:
    """Check that what was told to have expired is shown no more, unless it was brought back by a name of its own."""
    if not isinstance(seen.outcome, Committed) or seen.ended is None:
        return
    told = {id_bytes(each) for each in seen.expired}
    named = {root[2].id for root in lifetimes.at(seen.ended).roots.values()}
    for identifier in sorted(told - named):
        if lifetimes.lapsed.get(identifier, inf) > seen.ended:
            what = f"{seen.process} was told at {seen.ended:.3f} that it has expired, and it is kept"
            yield Violation(_RULE, what, f"snapshot {id_text(identifier)}")


def _still_named(
    lifetimes: Lifetimes, shown: Held, identifier: bytes, causes: list[Upkeep], at: float, where: str
) -> Iterator[Violation]:
    """Check that no branch or tag is at what expires, unless it came there since the expiry began."""
    if not causes:
        return
    began = min(cause.began for cause in causes) - lifetimes.lag
    moments = [each for moment in lifetimes.between(began, at) for each in (moment - 1e-9, moment)]
    earlier = [lifetimes.at(each) for each in (began, *moments)]
    for what, root in shown.roots.items():
        befores = [held.roots.get(what) for held in earlier]  # one that was deleted came back since
        if root[2].id == identifier and all(one is not None and one[2].id == identifier for one in befores):
            yield Violation(_RULE, f"it expires, and {what} is at it", where)


def leaks(logs: Logs, notes: Observations, lifetimes: Lifetimes, objects: Mapping[str, bytes]) -> Iterator[Violation]:
    """Find what is left although nothing needs it, after two collections of everything in a quiet repository."""
    last = [seen for seen in notes.seen if isinstance(seen, Upkeep) and seen.what == "collect"][-2:]
    if len(last) < 2 or any(not isinstance(one.outcome, Committed) for one in last):
        return
    if any(one.process.partition(".")[0] != _LAST for one in last):
        return
    collections = [entry.watermark for entry in lifetimes.refs.entries if entry.operation == COLLECTED]
    watermark = min(each or b"" for each in collections[-2:]) if len(collections) > 1 else b""
    began = last[-1].began  # what the last collection itself replaces goes with the next one
    needed = _needed(logs, lifetimes.at(inf)) | _needed(logs, lifetimes.at(began)) | set(_leading(logs))
    for name, log in logs.branches.items():
        base = log.lives[lifetimes.newest(name, began)].base
        needed |= set() if base is None else {"snapshots/" + id_text(base)}
    for key in sorted(objects):
        kind, _, rest = key.partition("/")
        if kind in _KINDS and id_bytes(rest) < watermark and key not in needed:
            yield Violation(_RULE, "nothing needs it, and two collections have left it", key)


def _needed(logs: Logs, held: Held) -> set[str]:
    """Return the keys of everything that may stay."""
    needed: set[str] = set()
    for key, other in held.needs:
        needed |= {key, other}
    for name, first, last in held.stretches:
        log = logs.branches[name]
        for number in range(max(0, first - 1), last + 1):
            for key, other in needs_of(log.states[number]):
                needed |= {key, other}
            if log.states[number].id in logs.detached:  # a branch began there, even if an amendment took its place
                needed.add("snapshots/" + id_text(log.states[number].id))
        needed |= {"chunks/" + id_text(pack) for number, pack in log.brought if first <= number <= last}
        for commit in log.commits:
            if first <= commit.number <= last:
                for key, other in needs_of(commit.after):
                    needed |= {key, other}
                needed |= set(packs_of(commit.after))
    return needed


def _leading(logs: Logs) -> Iterator[str]:
    """Return the checkpoints to which hints, pages and logs lead."""
    for key in logs.reader.objects:
        if key.startswith("history/") and "/kept/" not in key:
            _, _, name, level, index = key.split("/")
            checkpoints = logs.reader.history(unquote(name), int(level), int(index))[1]
            yield from ("snapshots/" + id_text(identifier) for _, identifier in checkpoints)
    for name, log in logs.branches.items():
        life = log.lives[-1]
        origin = None if life.origin is None else life.origin[2]
        yield from ("snapshots/" + id_text(each) for each in (life.base, origin) if each is not None)
        try:
            yield "snapshots/" + id_text(logs.reader.hint(name)[1])
        except DecodingError:
            continue
