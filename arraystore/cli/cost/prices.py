"""Prices of object storage: a list with dates and sources, prices from a file, and changes to either."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from arraystore.errors import InvalidInputError

DEFAULT_PRICES = "s3-standard"
_TEXTS = ("service", "region", "as_of", "source")


@dataclass(frozen=True)
class Prices:
    """Prices of a storage class in a region, in US dollars.

    Parameters
    ----------
    service, region
        What the prices are for.
    as_of, source
        Date of the prices, and where they were published.
    storage_gb_month
        Of a gigabyte that is stored for a month.
    put_1000, get_1000, list_1000, delete_1000
        Of a thousand requests; a HEAD is a GET.
    retrieval_gb
        Of a gigabyte that is read, wherever it goes.
    transfer_gb
        Of a gigabyte that leaves the region.
    smallest_object_bytes
        Size that a smaller object is charged as.
    gb_bytes
        Bytes of a gigabyte as the service counts them.
    """

    service: str = "own prices"
    region: str = "any"
    as_of: str = "undated"
    source: str = "given"
    storage_gb_month: float = 0.0
    put_1000: float = 0.0
    get_1000: float = 0.0
    list_1000: float = 0.0
    delete_1000: float = 0.0
    retrieval_gb: float = 0.0
    transfer_gb: float = 0.0
    smallest_object_bytes: int = 0
    gb_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            _check_text(field.name, value) if field.name in _TEXTS else _check_number(field.name, value)
        if self.gb_bytes < 1:
            raise InvalidInputError(f"price gb_bytes={self.gb_bytes!r} must be >= 1")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"price {name}={value!r} must be a string")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"price {name}={value!r} must be a number >= 0")


def known_prices() -> dict[str, Prices]:
    """Return the prices that come with the package, by name."""
    text = files("arraystore.cli.cost").joinpath("prices.json").read_text(encoding="utf-8")
    return {name: Prices(**values) for name, values in json.loads(text).items()}


def find_prices(name: str, changes: Iterable[str] = ()) -> Prices:
    """Return known prices by name, or those of a JSON file, changed by items such as ``put_1000=0.004``."""
    known = known_prices()
    if name in known:
        prices = known[name]
    elif name.endswith(".json"):
        prices = _build(read_object(name, "prices"), Prices())
    else:
        raise InvalidInputError(f"--prices {name!r} is neither a .json file nor one of {', '.join(known)}")
    return _build(dict(map(_parse_change, changes)), prices)


def _build(values: Mapping[str, Any], base: Prices) -> Prices:
    names = [field.name for field in fields(Prices)]
    if unknown := sorted(values.keys() - set(names)):
        raise InvalidInputError(f"unknown price {', '.join(unknown)}: choose from {', '.join(names)}")
    return replace(base, **values)


def _parse_change(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInputError(f"--price {text!r} must be NAME=VALUE, e.g. storage_gb_month=0.021")
    try:
        return name, value if name in _TEXTS else float(value)
    except ValueError:
        raise InvalidInputError(f"--price {text!r}: {value!r} is not a number") from None


def read_object(path: str, what: str) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path!r} does not hold {what} as JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInputError(f"{path!r} must hold {what} as a JSON object, not as {type(found).__name__}")
    return found
