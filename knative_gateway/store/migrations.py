"""How the schema came to be what it is, step by step; each step is carried out once, all in one transaction. [io]

A step is never changed once released: a later one changes what it left. A database of a newer gateway is left alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, func, insert, select, text

from knative_gateway.errors import ConfigError
from knative_gateway.store.tables import COUNTERS, METADATA, RANGES, SCHEMA

ADVISORY_LOCK: Final = 0x6B6E_6777
"""Of PostgreSQL, while migrating: replicas that start at once wait for each other."""
Step = Callable[[Connection], None]


def _first(connection: Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    # Version 0 means "any" to clients that watch, so the first list is of version 1.
    connection.execute(insert(COUNTERS).values(id=1, version=1, trimmed=1))


def _ranges(connection: Connection) -> None:
    RANGES.create(connection, checkfirst=True)


STEPS: Final[Sequence[Step]] = (_first, _ranges)


def migrate(connection: Connection, steps: Sequence[Step] = STEPS) -> None:
    """Bring the schema up to date.

    Raises:
        ConfigError: it is of a newer gateway than this.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": ADVISORY_LOCK})
    SCHEMA.create(connection, checkfirst=True)
    done = connection.execute(select(func.coalesce(func.max(SCHEMA.c.version), 0))).scalar_one()
    if done > len(steps):
        message = f"the state database has schema {done}, this gateway knows {len(steps)}: run a newer one, or give it another database"
        raise ConfigError(message)
    for number, step in enumerate(steps[done:], done + 1):
        step(connection)
        connection.execute(insert(SCHEMA).values(version=number))
