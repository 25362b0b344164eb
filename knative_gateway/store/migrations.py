"""The steps that upgrade the schema. Each step runs once; all steps run in one transaction. [io]

A released step is never changed: a later step corrects it. The database of a newer gateway is refused.
"""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, text

from knative_gateway.errors import ConfigError
from knative_gateway.store.tables import COUNTERS, INCARNATIONS, METADATA, POSITIONS, RANGES, REPLAYS, SCHEMA

ADVISORY_LOCK: Final = 0x6B6E_6777
"""The lock in PostgreSQL during an upgrade. Replicas that start at the same time wait for each other."""
Step = Callable[[Connection], None]


def _first(connection: Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    # Clients that watch use version 0 for "any version", so the first list has version 1.
    connection.execute(insert(COUNTERS).values(id=1, version=1, trimmed=1))


def _ranges(connection: Connection) -> None:
    RANGES.create(connection, checkfirst=True)


def _replays(connection: Connection) -> None:
    """Move replays and incarnations to tables of their own.

    Schema 2 stored them in rows of positions with negative partitions: the incarnation as -1, a replay of
    partition p as -2-p. The text of a pending replay began with "=".
    """
    INCARNATIONS.create(connection, checkfirst=True)
    REPLAYS.create(connection, checkfirst=True)
    uid, partition, offset = POSITIONS.c.uid, POSITIONS.c.log_partition, POSITIONS.c.log_offset
    incarnations = select(uid, offset).where(partition == -1)
    connection.execute(insert(INCARNATIONS).from_select(["uid", "incarnation"], incarnations))
    replays = select(uid, -2 - partition, func.substr(offset, 2)).where(
        partition < -1,
        offset.startswith("="),
    )
    connection.execute(insert(REPLAYS).from_select(["uid", "log_partition", "log_offset"], replays))
    connection.execute(delete(POSITIONS).where(partition < 0))


STEPS: Final[Sequence[Step]] = (_first, _ranges, _replays)


def migrate(connection: Connection, steps: Sequence[Step] = STEPS) -> None:
    """Upgrade the schema.

    Raises:
        ConfigError: a newer gateway wrote the schema.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": ADVISORY_LOCK})
    # After the lock: two replicas that start together would otherwise both create the table.
    SCHEMA.create(connection, checkfirst=True)
    done = connection.execute(select(func.coalesce(func.max(SCHEMA.c.version), 0))).scalar_one()
    if done > len(steps):
        known = f"the state database has schema {done}, and this gateway knows schema {len(steps)}"
        message = f"{known}: run a newer gateway, or use another database"
        raise ConfigError(message)
    for number, step in enumerate(steps[done:], done + 1):
        step(connection)
        connection.execute(insert(SCHEMA).values(version=number))
