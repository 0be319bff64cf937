"""The long mode of fuzzing: ``pytest tests/fuzz --fuzz-minutes 30``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-minutes",
        type=float,
        default=0.0,
        help="go on for so many minutes with chance of its own, all targets together, instead of the short fixed slice",
    )


@pytest.fixture(scope="session")
def fuzz_minutes(pytestconfig: pytest.Config) -> float:
    """Minutes of the long mode; 0 for the short one."""
    return float(pytestconfig.getoption("--fuzz-minutes", 0.0))
