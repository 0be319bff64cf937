"""A computation that options describe: a reduction, coarser cells, or a function of chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import Session
    from arraystore.transforms import TransformReport
    from arraystore.transforms.arrays import ArrayShape
    from arraystore.transforms.decoding import NumberDecoder


@dataclass(frozen=True)
class Computation:
    """Computation of `transform`; each option has an effect, or is refused."""

    function: str
    dims: list[str] | None = None
    factors: dict[str, int] | None = None
    quantiles: list[float] | None = None
    bins: list[float] | None = None
    halo: dict[str, int] | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if (self.quantiles is not None) != (self.function == "quantile"):
            raise InvalidInputError("--quantiles and --function quantile need each other")
        if (self.bins is not None) != (self.function == "histogram"):
            raise InvalidInputError("--bins and --function histogram need each other")
        if self.halo is not None and not self.is_call:
            raise InvalidInputError("--halo needs --function MODULE:FUNCTION")
        if self.factors is not None and self.function in ("quantile", "histogram"):
            raise InvalidInputError(f"--factors has no effect on --function {self.function}: leave it out")
        if self.dims is not None and (self.is_call or self.factors is not None):
            raise InvalidInputError(
                "--dims are the dimensions of a reduction, without --factors and MODULE:FUNCTION: leave it out"
            )
        if self.overwrite and self.is_call:
            raise InvalidInputError("--overwrite has no effect on the result of MODULE:FUNCTION, which exists")

    @property
    def is_call(self) -> bool:
        """Tell whether a function of the user's computes the values."""
        return ":" in self.function

    @property
    def is_reduction(self) -> bool:
        """Tell whether dimensions are removed."""
        return not self.is_call and self.factors is None

    def check(self, session: Session, array: str, result: str) -> None:
        """Check what can be known before a value is read; raise `InvalidInputError`."""
        from arraystore.transforms import arrays, reducers, reduction, transform

        factors = transform.parse_factors(self.factors)
        if self.is_call:
            imported(self.function)
            transform.align(session, [array], result, factors, self.halo, "cut")
            return
        source, _, decoder = reduction.open_source(session, array)
        if self.factors is not None:
            self._check_windows(source, decoder)
        elif self.quantiles is not None:
            reduction.parse_quantiles(self.quantiles)
        elif self.bins is not None:
            reduction.parse_edges(self.bins)
        else:
            reducers.make_reducer(self.function, decoder.result_dtype, skipna=True, ddof=0, missing=None)
        arrays.check_result(session, array, result, overwrite=self.overwrite)

    def _check_windows(self, source: ArrayShape, decoder: NumberDecoder) -> None:
        from arraystore.transforms.coarsening import check_coarsening

        for dim in self.factors or {}:
            source.axis(dim)
        check_coarsening(source.path, self.function, "partial", decoder.scale, packed=decoder.is_packed)

    def run(self, session: Session, array: str, result: str, **options: Any) -> TransformReport:
        """Compute the result in a session."""
        from arraystore import transforms

        if self.is_call:
            called = imported(self.function)
            options |= {"halo": self.halo, "factors": self.factors}
            return transforms.transform_chunks(session, array, result, called, **options)
        options["overwrite"] = self.overwrite
        if self.factors is not None:
            return transforms.coarsen(session, array, result, self.factors, self.function, **options)
        if self.quantiles is not None:
            return transforms.quantile(session, array, result, self.quantiles, self.dims, **options)
        if self.bins is not None:
            return transforms.histogram(session, array, result, self.bins, self.dims, **options)
        return transforms.reduce_array(session, array, result, self.function, self.dims, **options)


# -- options ----------------------------------------------------------------------------------------------------


def parse_counts(text: str | None, option: str) -> dict[str, int] | None:
    """Parse integers by dimension."""
    if text is None:
        return None
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        counts = {name.strip(): int(count) for name, _, count in parts}
    except ValueError:
        counts = {}
    if len(counts) < len(parts) or "" in counts:
        raise InvalidInputError(f"{option} {text!r} must be like y=2,x=2, each dimension once")
    return counts


def parse_names(text: str | None) -> list[str] | None:
    """Parse names with commas."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_numbers(text: str | None, option: str) -> list[float] | None:
    """Parse numbers with commas."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(f"{option} {text!r} must be numbers with commas") from None


def imported(name: str) -> Callable[..., Any]:
    """Import a function that is named as MODULE:FUNCTION."""
    module, _, attribute = name.partition(":")
    try:
        function: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"--function {name!r} cannot be imported: {error}") from error
    return function
