"""How far subscribers have come, and what lately went wrong with them. [io]

Law: a position goes forward only, but by `reset`: offsets of a partition sort as texts, byte by byte, in the order of the log.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, bindparam, collate, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from knative_gateway.ports import Failure, Range
from knative_gateway.store.database import Database
from knative_gateway.store.documents import read, written
from knative_gateway.store.tables import FAILURES, POSITIONS, RANGES

HISTORY_MAX: Final = 100
"""Failures kept of a subscriber."""
_AT_ONCE: Final = 1000
"""Subscribers that one query asks for: databases bound the parameters of a statement."""
_HISTORY: Final = select(FAILURES.c.document).where(FAILURES.c.uid == bindparam("of")).order_by(FAILURES.c.id.desc()).limit(HISTORY_MAX)

_LATEST: Final = select(FAILURES.c.id).where(FAILURES.c.uid == bindparam("of")).order_by(FAILURES.c.id.desc()).limit(HISTORY_MAX)
_FORGET_OLD: Final = delete(FAILURES).where(FAILURES.c.uid == bindparam("of"), FAILURES.c.id.not_in(_LATEST))


class SqlCheckpoints:
    """The `Checkpoints` of the gateway."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._insert: Final = postgresql.insert if database.postgresql else sqlite.insert
        self._begin: Final = self._insert(POSITIONS).on_conflict_do_nothing()
        # One statement for ever, and rows as parameters: with the rows in it, it would be compiled anew for every save.
        forward = self._insert(POSITIONS)
        kept, new, bytewise = POSITIONS.c.log_offset, forward.excluded.log_offset, "C" if database.postgresql else "BINARY"
        self._forward: Final = forward.on_conflict_do_update(
            index_elements=[POSITIONS.c.uid, POSITIONS.c.log_partition],
            set_={"log_offset": new},
            where=collate(kept, bytewise) < collate(new, bytewise),
        )

        ranges = self._insert(RANGES)
        self._replace: Final = ranges.on_conflict_do_update(
            index_elements=[RANGES.c.uid, RANGES.c.log_partition], set_={"ranges": ranges.excluded.ranges}
        )

    async def load(self, uids: Collection[str]) -> Mapping[str, Mapping[int, str]]:
        """Positions by subscriber and partition; nothing for a subscriber that never had any."""
        return _by_uid(await self._database.read(partial(_of, POSITIONS, uids)))

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        """What these have completed above their positions, by subscriber and partition."""
        rows = await self._database.read(partial(_of, RANGES, uids))
        return {(row.uid, row.log_partition): _parsed(row.ranges) for row in rows}

    async def begin(self, positions: Mapping[str, Mapping[int, str]]) -> Mapping[str, Mapping[int, str]]:
        """Take these where a subscriber has none yet; gives the positions that they have then."""
        rows = [
            {"uid": uid, "log_partition": partition, "log_offset": offset}
            for uid, places in sorted(positions.items())
            for partition, offset in sorted(places.items())
        ]

        def begin(connection: Connection) -> Sequence[Row[Any]]:
            if rows:
                connection.execute(self._begin, rows)
            return _of(POSITIONS, positions, connection)

        return _by_uid(await self._database.write(begin))

    async def save(self, positions: Mapping[tuple[str, int], str], done: Mapping[tuple[str, int], Sequence[Range]] | None = None) -> None:
        """Replace these positions, durable when it returns; key: (uid, partition). One that would go back is left as it is.

        `done`: what is completed above a position; replaces what was known of it.

        Raises:
            UnavailableError: the database is away; nothing is known of these.
        """
        # In one order everywhere: replicas that save the same rows wait for each other, but never in a circle.
        rows = [{"uid": uid, "log_partition": partition, "log_offset": offset} for (uid, partition), offset in sorted(positions.items())]
        ranges = [
            {"uid": uid, "log_partition": partition, "ranges": _written(each)} for (uid, partition), each in sorted((done or {}).items())
        ]
        if not rows and not ranges:
            return

        def keep(connection: Connection) -> None:
            if rows:
                connection.execute(self._forward, rows)
            if ranges:
                connection.execute(self._replace, ranges)

        await self._database.write(keep)

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions, back or forth; those of other partitions stay. What was completed above them is forgotten."""

        def put(connection: Connection) -> None:
            connection.execute(delete(RANGES).where(RANGES.c.uid == uid, RANGES.c.log_partition.in_(sorted(positions))))
            for partition, offset in sorted(positions.items()):
                statement = self._insert(POSITIONS).values(uid=uid, log_partition=partition, log_offset=offset)
                own = [POSITIONS.c.uid, POSITIONS.c.log_partition]
                connection.execute(statement.on_conflict_do_update(index_elements=own, set_={"log_offset": offset}))

        await self._database.write(put)

    async def noted(self, *, below: int) -> Mapping[str, Mapping[int, str]]:
        """Of all subscribers what is kept under numbers below that and is not empty."""
        query = select(POSITIONS).where(POSITIONS.c.log_partition < below, POSITIONS.c.log_offset != "")
        return _by_uid(await self._database.read(lambda connection: connection.execute(query).all()))

    async def forget(self, uid: str) -> None:
        """The subscriber is gone for good."""

        def remove(connection: Connection) -> None:
            for table in (POSITIONS, RANGES, FAILURES):
                connection.execute(delete(table).where(table.c.uid == uid))

        await self._database.write(remove)

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Add to the histories of these subscribers, all or nothing; the latest `HISTORY_MAX` of a subscriber are kept."""
        rows = [
            {"uid": uid, "document": written(asdict(failure))} for uid, each in sorted(failures.items()) for failure in each[-HISTORY_MAX:]
        ]
        if not rows:
            return

        def add(connection: Connection) -> None:
            connection.execute(insert(FAILURES), rows)
            connection.execute(_FORGET_OLD, [{"of": uid} for uid, each in sorted(failures.items()) if each])

        await self._database.write(add)

    async def history(self, uid: str) -> Sequence[Failure]:
        """The history, the latest first."""
        documents = await self._database.read(lambda connection: connection.execute(_HISTORY, {"of": uid}).scalars().all())
        return [Failure(**read(document)) for document in documents]  # type: ignore[arg-type]  # as `record` wrote them


def _of(table: Table, uids: Collection[str], connection: Connection) -> Sequence[Row[Any]]:
    """The rows of these subscribers."""
    rows: list[Row[Any]] = []
    wanted = sorted(uids)
    query = select(table).where(table.c.uid.in_(bindparam("uids", expanding=True)))
    for start in range(0, len(wanted), _AT_ONCE):
        rows += connection.execute(query, {"uids": wanted[start : start + _AT_ONCE]}).all()
    return rows


def _by_uid(rows: Sequence[Row[Any]]) -> Mapping[str, Mapping[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        found.setdefault(row.uid, {})[row.log_partition] = row.log_offset
    return found


def _written(ranges: Sequence[Range]) -> str:
    return ",".join(f"{after}-{last}" for after, last in ranges)


def _parsed(text: str) -> Sequence[Range]:
    pairs = [entry.partition("-") for entry in text.split(",") if entry]
    return [(after, last) for after, _, last in pairs]
