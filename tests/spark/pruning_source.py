"""A data source that prunes its partitions by filters, as Spark's documentation says; none of it is of arraystore."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition


class PlainReader(DataSourceReader):
    """Reads four partitions of one row each, ``a`` from 0 to 3."""

    def __init__(self) -> None:
        self.wanted = [0, 1, 2, 3]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(a) for a in self.wanted]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield (partition.value, 10 * partition.value)


class PruningReader(PlainReader):
    """Leaves out partitions that no filter asks for."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("a",):
                self.wanted = [a for a in self.wanted if a == one.value]
        return filters


class PruningSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pruning"

    def schema(self) -> str:
        return "a int, b int"

    def reader(self, schema: Any) -> DataSourceReader:
        pushing = "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
        return PruningReader() if pushing else PlainReader()
