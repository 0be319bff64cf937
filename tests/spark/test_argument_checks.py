from __future__ import annotations

from typing import Any

import pytest

from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice, check_count
from arraystore.spark.writing.repartition import sorts_automatically


@pytest.mark.parametrize("count", [0, -1, 1.0, "4", True])
def test_what_is_no_count_is_refused_with_its_name(count: object):
    with pytest.raises(InvalidInputError, match="must be an integer >= 1"):
        check_count("tasks", count)


@pytest.mark.parametrize("count", [None, 1, 2**40])
def test_counts_and_their_defaults_pass(count: object):
    check_count("tasks", count)


def test_a_word_that_is_no_choice_is_refused_with_those_that_are():
    check_choice("layout", "rows", ("rows", "chunks"))
    with pytest.raises(InvalidInputError, match="layout='cubes' must be one of 'rows', 'chunks'"):
        check_choice("layout", "cubes", ("rows", "chunks"))


@pytest.mark.parametrize(("sort", "automatic"), [("auto", True), (None, True), (True, False), (False, False)])
def test_rows_are_sorted_where_it_pays_unless_that_is_said(sort: Any, automatic: bool):
    assert sorts_automatically(sort) == automatic


def test_a_sort_that_is_no_choice_is_refused():
    with pytest.raises(InvalidInputError, match="sort='yes' must be one of 'auto', None, True, False"):
        sorts_automatically("yes")  # type: ignore[arg-type]
