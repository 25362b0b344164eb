"""The cursors of subscribers, requested replays, and the histories of failed deliveries. [io]

A position only increases, except by `reset`, `restart` and `replay`. Offsets of a partition sort as texts,
byte by byte, in the order of the log.

Writes lock rows in one order: by table (incarnations, positions, ranges, replays), then by subscriber and
partition. So replicas that write the same rows may wait for each other, but cannot deadlock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, bindparam, collate, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from knative_gateway.ports import Failure, Range, StoredCursor
from knative_gateway.store.database import Database
from knative_gateway.store.documents import read, written
from knative_gateway.store.tables import FAILURES, INCARNATIONS, POSITIONS, RANGES, REPLAYS

HISTORY_MAX: Final = 100
"""Failures that are stored for one subscriber."""
_AT_ONCE: Final = 1000
"""Subscribers in one query, because databases limit the parameters of a statement."""
_LATEST: Final = (
    select(FAILURES.c.id)
    .where(FAILURES.c.uid == bindparam("of"))
    .order_by(FAILURES.c.id.desc())
    .limit(HISTORY_MAX)
)
_FORGET_OLD: Final = delete(FAILURES).where(FAILURES.c.uid == bindparam("of"), FAILURES.c.id.not_in(_LATEST))
_HISTORY: Final = (
    select(FAILURES.c.document)
    .where(FAILURES.c.uid == bindparam("of"))
    .order_by(FAILURES.c.id.desc())
    .limit(HISTORY_MAX)
)


class SqlCursorStore:
    """The `CursorStore` of the gateway."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        insert_ = postgresql.insert if database.postgresql else sqlite.insert
        # Statements are built once, and rows are parameters. A statement that contains the rows would be
        # compiled at each save.
        self._begin_positions: Final = insert_(POSITIONS).on_conflict_do_nothing()
        self._begin_incarnations: Final = insert_(INCARNATIONS).on_conflict_do_nothing()
        position = insert_(POSITIONS)
        kept, new = POSITIONS.c.log_offset, position.excluded.log_offset
        # Compare byte by byte: in most locales, "a" sorts before "Z".
        bytewise = "C" if database.postgresql else "BINARY"
        key = [POSITIONS.c.uid, POSITIONS.c.log_partition]
        self._forward: Final = position.on_conflict_do_update(
            index_elements=key,
            set_={"log_offset": new},
            # The condition makes a late write of a former owner harmless: it cannot move the position back.
            where=collate(kept, bytewise) < collate(new, bytewise),
        )
        self._set_position: Final = position.on_conflict_do_update(
            index_elements=key,
            set_={"log_offset": new},
        )
        ranges, replay, incarnation = insert_(RANGES), insert_(REPLAYS), insert_(INCARNATIONS)
        self._set_ranges: Final = ranges.on_conflict_do_update(
            index_elements=[RANGES.c.uid, RANGES.c.log_partition],
            set_={"ranges": ranges.excluded.ranges},
        )
        self._set_replay: Final = replay.on_conflict_do_update(
            index_elements=[REPLAYS.c.uid, REPLAYS.c.log_partition],
            set_={"log_offset": replay.excluded.log_offset},
        )
        self._set_incarnation: Final = incarnation.on_conflict_do_update(
            index_elements=[INCARNATIONS.c.uid],
            set_={"incarnation": incarnation.excluded.incarnation},
        )

    async def load(self, uids: Collection[str]) -> Mapping[str, StoredCursor]:
        """Return the cursors of these subscribers. Subscribers without a cursor are missing."""
        return await self._database.read(partial(_cursors, uids))

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        """Return the completed ranges above the positions, by subscriber and partition."""
        rows = await self._database.read(partial(_of, RANGES, uids))
        return {(row.uid, row.log_partition): _parsed(row.ranges) for row in rows}

    async def begin(self, cursors: Mapping[str, StoredCursor]) -> Mapping[str, StoredCursor]:
        """Store positions and incarnations of subscribers that do not have them yet. Returns what is stored
        then.
        """
        positions = _rows((uid, cursor.positions) for uid, cursor in sorted(cursors.items()))
        incarnations = [
            {"uid": uid, "incarnation": cursor.incarnation}
            for uid, cursor in sorted(cursors.items())
            if cursor.incarnation is not None
        ]

        def begin(connection: Connection) -> Mapping[str, StoredCursor]:
            if incarnations:
                connection.execute(self._begin_incarnations, incarnations)
            if positions:
                connection.execute(self._begin_positions, positions)
            return _cursors(cursors, connection)

        return await self._database.write(begin)

    async def save(
        self,
        positions: Mapping[tuple[str, int], str],
        done: Mapping[tuple[str, int], Sequence[Range]] | None = None,
        incarnations: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """Increase these positions; key: (uid, partition). Durable when it returns.

        `done`: completed ranges above a position; they replace the stored ones. `incarnations`: the logs that
        positions and ranges belong to. Positions of a former log are not stored: another replica may have
        noticed first that the log was recreated, and they would hide events of the new log.

        Raises:
            UnavailableError: the database is not available; some of the positions may be stored.
        """
        rows = [
            {"uid": uid, "log_partition": partition, "log_offset": offset}
            for (uid, partition), offset in sorted(positions.items())
        ]
        ranges = [
            {"uid": uid, "log_partition": partition, "ranges": _written(each)}
            for (uid, partition), each in sorted((done or {}).items())
        ]
        if not rows and not ranges:
            return
        belong = incarnations or {}
        uids = {uid for uid, _ in belong}

        def store(connection: Connection) -> None:
            stored = {row.uid: row.incarnation for row in _of(INCARNATIONS, uids, connection, lock=True)}

            def current(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
                return [row for row in given if _is_of(stored.get(row["uid"]), belong.get(_key(row)))]

            if moved := current(rows):
                connection.execute(self._forward, moved)
            if completed := current(ranges):
                connection.execute(self._set_ranges, completed)

        await self._database.write(store)

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions to any value, and remove the completed ranges above them."""
        await self._database.write(partial(self._reset, uid, positions))

    async def restart(self, uid: str, positions: Mapping[int, str], incarnation: str) -> None:
        """Set the positions in a recreated log. Removes completed ranges, and replays of the former log."""

        def restart(connection: Connection) -> None:
            connection.execute(self._set_incarnation, {"uid": uid, "incarnation": incarnation})
            self._reset(uid, positions, connection)
            connection.execute(delete(REPLAYS).where(REPLAYS.c.uid == uid))

        await self._database.write(restart)

    async def ask_replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Request a replay of these partitions from these positions. Replaces earlier requests.

        The owner of each partition carries the replay out.
        """
        rows = _rows([(uid, to)])
        if rows:
            await self._database.write(lambda connection: connection.execute(self._set_replay, rows).rowcount)

    async def replay(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions as `reset` does, and remove the requests to replay these partitions."""

        def replay(connection: Connection) -> None:
            self._reset(uid, positions, connection)
            is_done = REPLAYS.c.log_partition.in_(sorted(positions))
            # In the transaction of the new positions: after a crash, a replay is either still requested or
            # carried out.
            connection.execute(delete(REPLAYS).where(REPLAYS.c.uid == uid, is_done))

        await self._database.write(replay)

    async def replays(self) -> Mapping[str, Mapping[int, str]]:
        """Return all requested replays, by subscriber and partition."""
        return _by_uid(
            await self._database.read(lambda connection: connection.execute(select(REPLAYS)).all()),
        )

    async def forget(self, uid: str) -> None:
        """Remove all rows of a subscriber."""

        def remove(connection: Connection) -> None:
            for table in (INCARNATIONS, POSITIONS, RANGES, REPLAYS, FAILURES):
                connection.execute(delete(table).where(table.c.uid == uid))

        await self._database.write(remove)

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Add to the histories of these subscribers, in one transaction. Each keeps its latest `HISTORY_MAX`
        failures.
        """
        rows = [
            {"uid": uid, "document": written(asdict(failure))}
            for uid, each in sorted(failures.items())
            # Older ones would be removed by the next statement.
            for failure in each[-HISTORY_MAX:]
        ]
        if not rows:
            return

        def add(connection: Connection) -> None:
            connection.execute(insert(FAILURES), rows)
            # In the same transaction, so that the table has a bound at any time.
            connection.execute(_FORGET_OLD, [{"of": uid} for uid, each in sorted(failures.items()) if each])

        await self._database.write(add)

    async def history(self, uid: str) -> Sequence[Failure]:
        """Return the failures of a subscriber, the latest first."""
        documents = await self._database.read(
            lambda connection: connection.execute(_HISTORY, {"of": uid}).scalars().all(),
        )
        # As `record` wrote them.
        return [Failure(**read(document)) for document in documents]  # type: ignore[arg-type]

    def _reset(self, uid: str, positions: Mapping[int, str], connection: Connection) -> None:
        rows = _rows([(uid, positions)])
        if rows:
            connection.execute(self._set_position, rows)
            are_reset = RANGES.c.log_partition.in_(sorted(positions))
            connection.execute(delete(RANGES).where(RANGES.c.uid == uid, are_reset))


def _rows(offsets: Iterable[tuple[str, Mapping[int, str]]]) -> list[dict[str, object]]:
    return [
        {"uid": uid, "log_partition": partition, "log_offset": offset}
        for uid, by_partition in offsets
        for partition, offset in sorted(by_partition.items())
    ]


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["uid"], row["log_partition"]


def _is_of(stored: str | None, incarnation: str | None) -> bool:
    """Whether a position belongs to the stored incarnation of the log, as far as both are known."""
    return not stored or not incarnation or stored == incarnation


def _of(
    table: Table, uids: Collection[str], connection: Connection, *, lock: bool = False
) -> Sequence[Row[Any]]:
    """Return the rows of these subscribers. `lock`: no other transaction changes them until this one ends."""
    rows: list[Row[Any]] = []
    wanted = sorted(uids)
    query = select(table).where(table.c.uid.in_(bindparam("uids", expanding=True)))
    if lock:
        query = query.order_by(table.c.uid).with_for_update(read=True)
    for start in range(0, len(wanted), _AT_ONCE):
        rows += connection.execute(query, {"uids": wanted[start : start + _AT_ONCE]}).all()
    return rows


def _cursors(uids: Collection[str], connection: Connection) -> Mapping[str, StoredCursor]:
    positions = _by_uid(_of(POSITIONS, uids, connection))
    replays = _by_uid(_of(REPLAYS, uids, connection))
    incarnations = {row.uid: row.incarnation for row in _of(INCARNATIONS, uids, connection)}
    return {
        uid: StoredCursor(positions.get(uid, {}), incarnations.get(uid), replays.get(uid, {}))
        for uid in positions.keys() | replays.keys() | incarnations.keys()
    }


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
