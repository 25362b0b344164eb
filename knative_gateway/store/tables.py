"""The tables in the form of the newest schema.

Documents are JSON in ASCII with escapes, so that both databases accept any text. A version counts the writes
to the store.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

METADATA: Final = MetaData()
# SQLite numbers rows by itself only in a column of the type INTEGER.
_COUNT: Final = BigInteger().with_variant(Integer, "sqlite")

COUNTERS: Final = Table(
    "counters",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("trimmed", BigInteger, nullable=False),
)
"""One row. `version`: the version of the last write; the transaction that holds the lock of the row is the
only writer. `trimmed`: changes up to this version were removed.
"""

OBJECTS: Final = Table(
    "objects",
    METADATA,
    Column("api_group", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

CHANGES: Final = Table(
    "changes",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("api_group", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("previous", Text),
)
"""The watch feed. `previous`: the document before the change; NULL for a new object."""

POSITIONS: Final = Table(
    "positions",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("log_offset", Text, nullable=False),
)
"""For each subscriber and partition: the offset of the last event up to which all events are completed."""

INCARNATIONS: Final = Table(
    "log_incarnations",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("incarnation", Text, nullable=False),
)
"""The incarnation of the log to which the positions of a subscriber belong."""

REPLAYS: Final = Table(
    "replays",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("log_offset", Text, nullable=False),
)
"""Requested replays: the position from which the owner of the partition shall replay it."""

RANGES: Final = Table(
    "completed_ranges",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("ranges", Text, nullable=False),
)
"""The completed ranges above a position: "AFTER-LAST,…", in the order of the log."""

FAILURES: Final = Table(
    "failures",
    METADATA,
    Column("id", _COUNT, primary_key=True, autoincrement=True),
    Column("uid", Text, nullable=False),
    Column("document", Text, nullable=False),
    Index("failures_of", "uid", "id"),
)

SCHEMA: Final = Table(
    "schema_version",
    # Metadata of its own: this table is created before the first step, and not by it.
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
)
"""The numbers of the steps that have run. This table is created before all steps."""
