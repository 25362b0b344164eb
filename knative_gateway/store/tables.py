"""The tables, as the newest migration leaves them. [io]

Documents are JSON in ASCII with escapes, so that both databases accept any text. Versions count the writes to
the store.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

METADATA: Final = MetaData()
_COUNT: Final = BigInteger().with_variant(Integer, "sqlite")

COUNTERS: Final = Table(
    "counters",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("trimmed", BigInteger, nullable=False),
)
"""One row. `version`: of the last write; the transaction that holds the row's lock is the only writer.
`trimmed`: changes up to this version are forgotten.
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
"""Of each subscriber and partition: the offset of the last event up to which all are completed."""

INCARNATIONS: Final = Table(
    "log_incarnations",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("incarnation", Text, nullable=False),
)
"""The incarnation of the log that the positions of a subscriber are of."""

REPLAYS: Final = Table(
    "replays",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("log_offset", Text, nullable=False),
)
"""Replays that were asked for and are not done: the position from which the partition's owner replays it."""

RANGES: Final = Table(
    "completed_ranges",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("ranges", Text, nullable=False),
)
"""What is completed above a position: "AFTER-LAST,…", offsets in order."""

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
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
)
"""The migrations that were carried out. This table is created before all of them."""
