"""How far subscribers have come, and what lately went wrong with them. [io]

Law: a position goes forward only, but by `reset`: offsets of a partition sort as texts, byte by byte, in the order of the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import bindparam, collate, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from knative_gateway.ports import Failure
from knative_gateway.store.database import Database
from knative_gateway.store.documents import read, written
from knative_gateway.store.tables import FAILURES, POSITIONS

HISTORY_MAX: Final = 100
"""Failures kept of a subscriber."""
_HISTORY: Final = select(FAILURES.c.document).where(FAILURES.c.uid == bindparam("of")).order_by(FAILURES.c.id.desc()).limit(HISTORY_MAX)


class SqlCheckpoints:
    """The `Checkpoints` of the gateway."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._insert: Final = postgresql.insert if database.postgresql else sqlite.insert
        # One statement for ever, and rows as parameters: with the rows in it, it would be compiled anew for every save.
        forward = self._insert(POSITIONS)
        kept, new, bytewise = POSITIONS.c.log_offset, forward.excluded.log_offset, "C" if database.postgresql else "BINARY"
        self._forward: Final = forward.on_conflict_do_update(
            index_elements=[POSITIONS.c.uid, POSITIONS.c.log_partition],
            set_={"log_offset": new},
            where=collate(kept, bytewise) < collate(new, bytewise),
        )

    async def load(self, uid: str) -> Mapping[int, str]:
        """Positions by partition; empty for a subscriber that never had any."""
        query = select(POSITIONS.c.log_partition, POSITIONS.c.log_offset).where(POSITIONS.c.uid == uid)
        async with self._database.read() as connection:
            return {row.log_partition: row.log_offset for row in await connection.execute(query)}

    async def begin(self, uid: str, positions: Mapping[int, str]) -> Mapping[int, str]:
        """Take these where it has none yet; gives the positions that it has then."""
        rows = [{"uid": uid, "log_partition": partition, "log_offset": offset} for partition, offset in sorted(positions.items())]
        if rows:
            async with self._database.write() as connection:
                statement = self._insert(POSITIONS).values(rows).on_conflict_do_nothing()
                await connection.execute(statement)
                await connection.commit()
        return await self.load(uid)

    async def save(self, positions: Mapping[tuple[str, int], str]) -> None:
        """Replace these positions, durable when it returns; key: (uid, partition). One that would go back is left as it is.

        Raises:
            UnavailableError: the database is away; nothing is known of these.
        """
        # In one order everywhere: replicas that save the same rows wait for each other, but never in a circle.
        rows = [{"uid": uid, "log_partition": partition, "log_offset": offset} for (uid, partition), offset in sorted(positions.items())]
        if not rows:
            return
        async with self._database.write() as connection:
            await connection.execute(self._forward, rows)
            await connection.commit()

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions, back or forth; those of other partitions stay."""
        async with self._database.write() as connection:
            for partition, offset in sorted(positions.items()):
                statement = self._insert(POSITIONS).values(uid=uid, log_partition=partition, log_offset=offset)
                own = [POSITIONS.c.uid, POSITIONS.c.log_partition]
                await connection.execute(statement.on_conflict_do_update(index_elements=own, set_={"log_offset": offset}))
            await connection.commit()

    async def noted(self, *, below: int) -> Mapping[str, Mapping[int, str]]:
        """Of all subscribers what is kept under numbers below that and is not empty."""
        query = select(POSITIONS).where(POSITIONS.c.log_partition < below, POSITIONS.c.log_offset != "")
        found: dict[str, dict[int, str]] = {}
        async with self._database.read() as connection:
            for row in await connection.execute(query):
                found.setdefault(row.uid, {})[row.log_partition] = row.log_offset
        return found

    async def forget(self, uid: str) -> None:
        """The subscriber is gone for good."""
        async with self._database.write() as connection:
            await connection.execute(delete(POSITIONS).where(POSITIONS.c.uid == uid))
            await connection.execute(delete(FAILURES).where(FAILURES.c.uid == uid))
            await connection.commit()

    async def record(self, uid: str, failures: Sequence[Failure]) -> None:
        """Add to the history; the latest `HISTORY_MAX` of a subscriber are kept."""
        if not failures:
            return
        rows = [{"uid": uid, "document": written(asdict(failure))} for failure in failures[-HISTORY_MAX:]]
        async with self._database.write() as connection:
            await connection.execute(insert(FAILURES), rows)
            latest = select(FAILURES.c.id).where(FAILURES.c.uid == uid).order_by(FAILURES.c.id.desc()).limit(HISTORY_MAX)
            await connection.execute(delete(FAILURES).where(FAILURES.c.uid == uid, FAILURES.c.id.not_in(latest)))
            await connection.commit()

    async def history(self, uid: str) -> Sequence[Failure]:
        """The history, the latest first."""
        async with self._database.read() as connection:
            documents = (await connection.execute(_HISTORY, {"of": uid})).scalars().all()
        return [Failure(**read(document)) for document in documents]  # type: ignore[arg-type]  # as `record` wrote them
