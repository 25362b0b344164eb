"""Converts batches of rows to AMQP messages, and selects the target (partition) of each message. Pure.

The messages for one target are in the order of their rows. A row goes to the partition in its column
`partition`; without it, to the partition that the engine computes from its key; without a key, to the default
partition of the encoder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.errors import RowError
from spark_connector.writing.cloudevents import event_sections
from spark_connector.writing.layout import Layout, Style
from spark_connector.writing.sections import (
    PROPERTY_COLUMNS,
    Pieces,
    application_properties,
    body_sections,
    entries_of,
    joined,
    key_sections,
    properties_sections,
)

BY_KEY: Final = None
"""A partition that the engine chooses by the key of each message."""

Target = int | None
"""A partition, or BY_KEY."""

_KEYED: Final = b"\x00\x53\x72"
"""The first bytes of a message with a key: its message annotations."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Converts the rows of a DataFrame to messages.

    `partition_count`: of the log. `default`: the partition for rows without key and partition.
    """

    layout: Layout
    partition_count: int
    default: int

    def encode(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.Int64Array | Target]:
        """Return a message for each row, and its target (null: BY_KEY), or one target for all.

        Raises:
            RowError: a row cannot be written.
        """
        columns = {name: batch.column(index) for name, index in self.layout.indexes.items()}
        sections = (
            event_sections(columns, len(batch))
            if self.layout.style is Style.CLOUDEVENTS
            else _sections(columns, len(batch))
        )
        messages = joined(sections)
        return messages, self._targets(messages, columns.get("partition"))

    def _targets(self, messages: pa.BinaryArray, partition: pa.Array | None) -> pa.Int64Array | Target:
        keyed = pc.starts_with(messages, pattern=_KEYED)
        if partition is None or partition.null_count == len(partition):
            if not keyed.true_count:
                return self.default
            if keyed.true_count == len(messages):
                return BY_KEY
            return self._by_key(keyed)
        self._check(partition)
        return pc.coalesce(partition.cast(pa.int64()), self._by_key(keyed))

    def _by_key(self, keyed: pa.BooleanArray) -> pa.Int64Array:
        return pc.if_else(keyed, pa.scalar(None, pa.int64()), pa.scalar(self.default, pa.int64()))

    def _check(self, partition: pa.Array) -> None:
        wrong = pc.or_(
            pc.less(partition, 0), pc.greater_equal(partition.cast(pa.int64()), self.partition_count)
        )
        if pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            raise RowError(
                f"column partition is {partition[row]}: the log has partitions 0 to"
                f" {self.partition_count - 1}",
                f"row {row} of its batch",
            )


def _sections(columns: Mapping[str, pa.Array], rows: int) -> list[pa.BinaryArray | Pieces]:
    sections: list[pa.BinaryArray | Pieces] = []
    if "key" in columns:
        sections.append(key_sections(columns["key"]))
    if columns.keys() & PROPERTY_COLUMNS:
        _check_content_type(columns.get("content_type"))
        sections.append(properties_sections(rows, columns))
    if "properties" in columns:
        sections.append(application_properties(entries_of(columns["properties"])))
    sections.append(body_sections(columns["body"]))
    return sections


def _check_content_type(column: pa.Array | None) -> None:
    """Symbols are ASCII (AMQP 1.0 types 1.6.21)."""
    if column is None:
        return
    wrong = pc.invert(pc.string_is_ascii(column))
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise RowError(
            f"column content_type {column[row].as_py()[:80]!r} is not ASCII", f"row {row} of its batch"
        )
