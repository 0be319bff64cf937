"""Parsing of the options of the data source.

Spark passes all options as strings, with their names in lower case, and shows them in plans, in its web interface and
in event logs, so secrets are refused. Unknown names are errors, as a misspelt option would silently have no effect.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from arraystore.errors import InvalidInputError

READ, WRITE, STREAM, CHANGES = "reading", "writing", "writing a stream", "reading changes"
LOOK = "looking at history, nodes or refs"
LOOKS = "history", "list", "refs"
"""Options that ask for rows about the repository in place of values."""

_BATCH, _WRITES, _FEED = {READ, WRITE}, {WRITE, STREAM}, {CHANGES}
_OF_WRITES = "group value values tolerance partial on_null on_duplicate lossy message"
_USES = (
    ("path branch array", _BATCH | _WRITES | _FEED),
    ("arrays", _BATCH | _FEED),
    ("changes", {READ} | _FEED),
    ("coords dims", _BATCH | _WRITES),
    ("tag snapshot ref as_of sel isel layout data where", {READ}),
    # A view has one set of options, and may be both read and inserted into.
    ("decode skip_missing chunks_per_task tasks", _BATCH),
    (_OF_WRITES, _BATCH | _WRITES),
    ("create append_dim chunks chunk_bytes units", _BATCH | _WRITES),
    ("replace_where", {WRITE}),
    ("stream", _WRITES),
    ("restarted", {STREAM}),
    ("batch", {WRITE}),
    ("from to starting_version starting_snapshot max_snapshots_per_trigger", _FEED),
)
_OF_LOOKS = {"path", "group", "branch", "tag", "snapshot", "ref", "as_of"}
_KNOWN: Mapping[str, set[str]] = {
    name: uses | {LOOK} if name in _OF_LOOKS else uses
    for names, uses in (*_USES, (" ".join((*LOOKS, "limit")), {LOOK}))
    for name in names.split()
}
"""Uses in which each option has an effect, or does no harm."""

_ALIASES = {
    "snapshotId": "snapshot",
    # Names of Delta Lake.
    "readChangeFeed": "changes", "readChangeData": "changes", "timestampAsOf": "as_of", "versionAsOf": "snapshot",
    "endingVersion": "to", "txnAppId": "stream", "txnVersion": "batch",
}  # fmt: skip
"""Other names of options."""

_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself adds."""

_DIGITS = 18
"""Most digits of a count; Python refuses to parse thousands of them."""

VIEWS_ONLY = (
    "Spark keeps no options of tables of this source, so views are supported, not tables: "
    "CREATE TEMPORARY VIEW name USING arraystore OPTIONS (path '...', array '...')"
)
_STORAGE = "storage."
_ELSEWHERE = {
    "paths": "load one repository at a time, and name its arrays in the option 'arrays'",
    # Spark adds these to the options of CREATE TABLE.
    **dict.fromkeys(("location", "owner", "provider"), VIEWS_ONLY),
    "mode": "call .mode('append') or .mode('overwrite') on the writer",
}
_SECRET = re.compile(
    r"secret|passw|token|credential|signature|private|access_?key|account_?key|api_?key|key_?id|\bkey$|\bsas|authori|header"
)
_SIGNED = re.compile(rf"{_SECRET.pattern}|^sig$|^x-(amz|goog)-")
"""Names in the queries of signed URLs."""

_HOW_TO_GIVE_SECRETS = (
    "options are shown in plans, logs and Spark's web interface, so credentials are not taken from there: let each "
    "process find its own, in its environment (spark.executorEnv.* or the cluster's secrets) or by the role of its "
    "machine"
)


def _bare(name: str) -> str:
    return name.replace("_", "")


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *map(str.capitalize, others)])


_SPELT = {alias.lower(): alias for alias in (*_ALIASES, *map(_camel_case, _KNOWN))}
_BY_BARE_NAME = {_bare(name): name for name in (*_KNOWN, *_ELSEWHERE)} | {
    alias.lower(): name for alias, name in _ALIASES.items()
}
"""Spark lower-cases names, so that ``skipMissing`` arrives as ``skipmissing``."""


@dataclass(frozen=True)
class RawOptions:
    """The options of one load or save, under their proper names."""

    texts: Mapping[str, str]
    """Options by name."""
    storage: Mapping[str, str]
    """Options of the storage by name, without the prefix."""
    of_stream: bool = False
    """Whether Spark has added options that only a streaming write gets."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Names under which options were given."""

    def called(self, name: str) -> str:
        """Return the name under which an option was given, for errors."""
        return self.aliases.get(name, name)

    def text(self, name: str) -> str | None:
        """Return an option as a string; None if it is missing or empty."""
        return self.texts.get(name, "").strip() or None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is true or false."""
        text = self.text(name)
        return default if text is None else flag_of(self.called(name), text)

    def given_flags(self, *names: str) -> dict[str, bool]:
        """Return those among options that are true or false which are given, by name."""
        return {name: self.flag(name) for name in names if self.text(name) is not None}

    def count(self, name: str) -> int | None:
        """Return an option that is a count >= 1."""
        number = self._digits(name, "an integer >= 1")
        if number == 0:
            raise self._wrong(name, "0", "an integer >= 1")
        return number

    def number(self, name: str) -> int | None:
        """Return an option that is an integer >= 0."""
        return self._digits(name, "an integer >= 0")

    def _digits(self, name: str, wanted: str) -> int | None:
        text = self.text(name)
        if text is not None and (not text.isascii() or not text.isdigit() or len(text) > _DIGITS):
            raise self._wrong(name, text, wanted)
        return None if text is None else int(text)

    def choice(self, name: str, *among: str) -> str | None:
        """Return an option that is one of a few words."""
        text = self.text(name)
        if text is not None and text.lower() not in among:
            raise self._wrong(name, text, f"one of {', '.join(among)}")
        return text and text.lower()

    def names(self, name: str) -> tuple[str, ...]:
        """Return an option that is a list: with commas, or in JSON."""
        text = self.text(name) or ""
        if text[:1] not in ("[", "{"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        parsed = self._json(name, text)
        if not isinstance(parsed, list) or not all(isinstance(each, str) and each for each in parsed):
            raise self._wrong(name, text, 'names, as in u,v or ["u", "v"]')
        return tuple(parsed)

    def names_or_mapping(self, name: str) -> tuple[str, ...] | dict[str, str]:
        """Return an option that is a list of names or a JSON object from names to names."""
        text = self.text(name)
        if text is None or not text.startswith("{"):
            return self.names(name)
        parsed = self._json(name, text)
        if not isinstance(parsed, dict) or not all(isinstance(each, str) and each for each in parsed.values()):
            raise self._wrong(name, text, 'names, as in u,v or {"u": "u_ms", "v": "v_ms"}')
        return parsed

    def sizes(self, name: str) -> tuple[int, ...] | dict[str, int] | None:
        """Return an option that is a list of sizes >= 1, or a JSON object from names to sizes."""
        text = self.text(name)
        if text is None:
            return None
        parsed = self._json(name, text if text[:1] in ("[", "{") else f"[{text}]")
        sizes = list(parsed.values()) if isinstance(parsed, dict) else parsed
        if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
            raise self._wrong(name, text, 'integers >= 1, as in 24,100,100 or {"time": 24}')
        return parsed if isinstance(parsed, dict) else tuple(sizes)

    def number_or_mapping(self, name: str) -> float | dict[str, float] | None:
        """Return an option that is a number, or a JSON object from names to numbers."""
        text = self.text(name)
        if text is None:
            return None
        parsed = self._json(name, text)
        if _is_number(parsed):
            return float(parsed)
        if isinstance(parsed, dict) and all(map(_is_number, parsed.values())):
            return {key: float(each) for key, each in parsed.items()}
        raise self._wrong(name, text, 'a number, or a number for each dimension: {"lat": 0.01}')

    def selection(self, name: str) -> dict[str, Any] | None:
        """Return a selection: for each dimension a value, a list of values, or a range of them.

        A range is a JSON object with ``start``, ``stop`` and ``step``, of which each may be left out.
        """
        text = self.text(name)
        if text is None:
            return None
        parsed = self._json(name, text)
        if not isinstance(parsed, dict):
            raise self._wrong(name, text, 'a JSON object by dimension: {"time": {"start": 0, "stop": 12}, "lat": 51.5}')
        return {dimension: _selected(self.called(name), dimension, wanted) for dimension, wanted in parsed.items()}

    def time(self, name: str) -> datetime | None:
        """Return an option that is a time with a time zone, in ISO 8601."""
        text = self.text(name)
        if text is None:
            return None
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            parsed = None
        if parsed is None or parsed.utcoffset() is None:
            raise self._wrong(name, text, "a time with a time zone: 2026-01-31T12:00:00+00:00")
        return parsed

    def _wrong(self, name: str, text: str, wanted: str) -> InvalidInputError:
        return _wrong(self.called(name), text, wanted)

    def _json(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"option {self.called(name)!r} is not JSON ({error}): {_short(text)}") from None


def check_names(options: Mapping[str, str]) -> RawOptions:
    """Sort options by kind; refuse unknown names and secrets, whose values no message shows."""
    texts: dict[str, str] = {}
    storage: dict[str, str] = {}
    aliases: dict[str, str] = {}
    if "owner" in map(str.lower, options):  # of a table, whose properties come in any order
        raise InvalidInputError(VIEWS_ONLY)
    for key, value in options.items():
        name = key.lower()
        proper = _BY_BARE_NAME.get(_bare(name))
        if name.startswith(_STORAGE):
            storage[_storage_name(name)] = value
        elif name in _OF_SPARK:
            continue
        elif proper is None or proper in _ELSEWHERE:
            raise InvalidInputError(_refusal(name, proper))
        elif proper in texts:
            both = " and ".join(map(repr, sorted((aliases.get(proper, proper), _spelt(name)))))
            raise InvalidInputError(f"options {both} are the same one in two spellings: give it once")
        else:
            texts[proper] = value
            aliases[proper] = _spelt(name)
    return RawOptions(texts, storage, any(name.lower() in _OF_SPARK for name in options), aliases)


def _spelt(name: str) -> str:
    """Return a name as it was given, with its capitals if there are no underscores."""
    return _SPELT.get(name, name)


def check_url(url: str) -> None:
    """Check that a URL is not signed, without showing its query; storages check the rest of it."""
    query = url.partition("?")[2] if "://" in url else ""
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if _SIGNED.search(name.lower()):
            raise InvalidInputError(
                f"the URL in option 'path' has {name!r} in its query, which looks like a credential: "
                f"{_HOW_TO_GIVE_SECRETS}"
            )


def check_use(raw: RawOptions, use: str) -> None:
    """Check that all options have an effect in this use."""
    for name in raw.texts:
        if use not in _KNOWN[name] and not (name in LOOKS and not raw.flag(name, default=True)):
            raise InvalidInputError(
                f"option {raw.called(name)!r} has no effect in {use}, but in {' and '.join(sorted(_KNOWN[name]))}: "
                "leave it out"
            )


def is_for_writing(raw: RawOptions) -> bool:
    """Return whether there are options that have an effect in writes only."""
    of_writes = {*_OF_WRITES.split(), "stream", "restarted", "batch"}
    return raw.of_stream or not of_writes.isdisjoint(raw.texts)


def flag_of(name: str, text: str) -> bool:
    """Parse "true" or "false"."""
    if text.lower() not in ("true", "false"):
        raise _wrong(name, text, "true or false")
    return text.lower() == "true"


def _refusal(name: str, proper: str | None) -> str:
    if proper is not None:
        elsewhere = _ELSEWHERE[proper]
        return elsewhere if elsewhere == VIEWS_ONLY else f"there is no option {name!r}: {elsewhere}"
    if _SECRET.search(name):
        return f"option {name!r} looks like a credential: {_HOW_TO_GIVE_SECRETS}"
    near = difflib.get_close_matches(name, [*_KNOWN, "storage.region", "storage.endpoint_url"], 3, 0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(sorted(_KNOWN))}"
    return f"there is no option {name!r}: {hint}"


def _storage_name(name: str) -> str:
    bare = name.removeprefix(_STORAGE)
    if _SECRET.search(bare):
        raise InvalidInputError(f"option {name!r} looks like a credential: {_HOW_TO_GIVE_SECRETS}")
    return bare


def _selected(option: str, dimension: str, wanted: Any) -> Any:
    if isinstance(wanted, dict):
        unknown = set(wanted) - {"start", "stop", "step"}
        if unknown or not wanted:
            raise InvalidInputError(
                f"option {option!r} selects along {dimension!r} with {sorted(wanted)}: a range has start, stop and step"
            )
        return slice(wanted.get("start"), wanted.get("stop"), wanted.get("step"))
    items = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(item, int | float | str) for item in items):
        raise InvalidInputError(
            f"option {option!r} selects along {dimension!r} with {_short(json.dumps(wanted))}: give a value, a list of "
            'values, or a range such as {"start": 0, "stop": 12}'
        )
    return wanted


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(name: str, text: str, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"option {name!r} is {_short(text)}, and must be {wanted}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + " ...")
