"""The columns of the source, their types, and which of them a query has. Pure (pyspark.sql.types and pyarrow come in late)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def chosen(options: Mapping[str, str]) -> "StructType":
    """The columns that the options choose."""
    raise NotImplementedError(len(options))
