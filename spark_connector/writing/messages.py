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
    key_sections,
    properties_sections,
)

BY_KEY: Final = None
"""A partition that the engine chooses by the key of each message."""

Target = int | None
"""A partition, or BY_KEY."""

_KEYED: Final = b"\x00\x53\x72"
"""The first bytes of a message with a key: its message annotations."""
_PLAIN: Final = b"\x00\x53\x73"
"""Messages without a key begin with these or greater bytes, because later sections have greater codes."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Converts the rows of a DataFrame to messages.

    `partition_count`: of the log. `default`: the partition for rows without key and partition.
    """

    layout: Layout
    partition_count: int
    default: int

    def encode(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[Target] | Target]:
        """Return a message for each row, and the targets: one for each message, or one for all.

        Raises:
            RowError: a row cannot be written.
        """
        columns = {name: batch.column(index) for name, index in self.layout.indexes.items()}
        sections = (
            event_sections(columns, len(batch))
            if self.layout.style is Style.CLOUDEVENTS
            else _sections(columns, len(batch))
        )
        messages = sections[0] if len(sections) == 1 else list(map(b"".join, zip(*sections, strict=True)))
        return messages, self._targets(messages, columns.get("partition"))

    def _targets(self, messages: list[bytes], partition: pa.Array | None) -> list[Target] | Target:
        if partition is None or partition.null_count == len(partition):
            # The least and the greatest message decide for all: no message is looked at.
            if min(messages, default=_PLAIN) >= _PLAIN:
                return self.default
            if max(messages) < _PLAIN:
                return BY_KEY
            return [BY_KEY if message.startswith(_KEYED) else self.default for message in messages]
        self._check(partition)
        return [
            wanted if wanted is not None else BY_KEY if message.startswith(_KEYED) else self.default
            for wanted, message in zip(partition.to_pylist(), messages, strict=True)
        ]

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


def _sections(columns: Mapping[str, pa.Array], rows: int) -> list[Pieces]:
    sections = []
    if "key" in columns:
        sections.append(key_sections(columns["key"].to_pylist()))
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
