"""The figures of the decision record on the size of the package are those of the package."""

from __future__ import annotations

import re
from pathlib import Path

from tools.count_lines import Size, size_of, sizes_by_part

DECISIONS = Path(__file__).parents[1] / "docs" / "decisions"
TEXT = (DECISIONS / "064-size-of-the-package.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`\w+`|the other \d+) \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)
NEVER_GIVEN = {37, 44}
"""Numbers that no record has had."""


def quoted() -> dict[str, Size]:
    return {
        name.strip("`"): Size(*(int(text.replace(",", "")) for text in figures)) for name, *figures in ROW.findall(TEXT)
    }


def is_near(quoted: int, counted: int) -> bool:
    return abs(quoted - counted) <= counted / 10


def test_lines_of_code_are_without_blank_lines_docstrings_comments_and_imports() -> None:
    source = (
        '"""Module."""\n\nimport os\n\n# Why.\nlimit = 1  # so few\n"""Of a name."""\n'
        'def f() -> str:\n    return """x\ny"""\n'
    )
    assert size_of(source) == Size(10, 4)


def test_the_table_has_the_size_of_each_part() -> None:
    counted = sizes_by_part()
    rows = quoted()
    others = [name for name in counted if name not in rows]
    parts = {name: counted[name] for name in rows if name in counted}
    parts[f"the other {len(others)}"] = sum((counted[name] for name in others), Size())
    assert rows.keys() == parts.keys()
    wrong = {
        name: size
        for name, size in parts.items()
        if not (is_near(rows[name].lines, size.lines) and is_near(rows[name].code, size.code))
    }
    assert wrong == {}, "write these figures into the record (python tools/count_lines.py)"


def test_the_sums_of_the_record_are_those_of_the_package() -> None:
    total = sum(sizes_by_part().values(), Size())
    (now,) = re.findall(r"now there are ([\d,]+)", TEXT)
    (share,) = re.findall(r"(\d+) % is not code", TEXT)
    assert is_near(int(now.replace(",", "")), total.lines)
    assert abs(int(share) - 100 * (1 - total.code / total.lines)) <= 3


def test_numbers_of_decisions_have_no_gaps_but_those_that_are_told() -> None:
    numbers = sorted(int(path.name[:3]) for path in DECISIONS.glob("*.md"))
    assert len(numbers) == len(set(numbers))
    assert {*range(1, numbers[-1] + 1)} - {*numbers} == NEVER_GIVEN
    contributing = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert " and ".join(map(str, sorted(NEVER_GIVEN))) in contributing
