"""What a case hands back: bars with verdicts, and tables with the figures behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Bar", "CaseResult", "Table", "at_least", "at_most", "human"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise and how it came out."""

    what: str
    ours: str
    peer: str
    ratio: str
    bar: str
    met: bool

    @property
    def verdict(self) -> str:
        """The word for the table."""
        return "met" if self.met else "**missed**"


@dataclass(frozen=True, slots=True)
class Table:
    """Figures, ready to print."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(slots=True)
class CaseResult:
    """Everything that one case found."""

    name: str
    title: str
    bars: list[Bar] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    environment: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the file of results."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CaseResult:
        """The reverse of `to_json`."""
        return cls(
            name=value["name"],
            title=value["title"],
            bars=[Bar(**bar) for bar in value["bars"]],
            tables=[Table(**table) for table in value["tables"]],
            notes=list(value["notes"]),
            environment=value["environment"],
        )


def at_most(what: str, ours: float, limit: float, unit: str, *, peer: str = "") -> Bar:
    """A bar on an absolute figure of ours."""
    return Bar(what, f"{human(ours)} {unit}", peer, "", f"≤ {human(limit)} {unit}", ours <= limit)


def at_least(what: str, ours: float, peer: float, factor: float, unit: str, *, peer_label: str = "") -> Bar:
    """A bar on being `factor` times as good as the peer, where less is better."""
    ratio = peer / ours if ours else float("inf")
    label = f"{human(peer)} {unit}" + (f" ({peer_label})" if peer_label else "")
    return Bar(what, f"{human(ours)} {unit}", label, f"{ratio:.2f}", f"≥ {human(factor)}", ratio >= factor)


def human(value: float) -> str:
    """A figure with as many digits as mean something."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
