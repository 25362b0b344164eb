"""Kubernetes objects in the database, with compare-and-set writes. Each write gets the next version of the
store. [io]

Versions become visible in ascending order: a write first locks the single row of counters, and holds the lock
until its commit. So a reader that sees version n also sees all versions before n.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from knative_gateway.errors import ConflictError
from knative_gateway.ports import Change, Key
from knative_gateway.resources.documents.large import INLINE_CHARACTERS, is_large
from knative_gateway.store.database import Database
from knative_gateway.store.decoded import Decoded
from knative_gateway.store.documents import read, written
from knative_gateway.store.feed import NOTICES, Feed
from knative_gateway.store.tables import CHANGES, COUNTERS, OBJECTS
from knative_gateway.store.writing import Undone

CHANGES_MAX: Final = 10_000
"""Changes that are stored for watches. Older changes are removed."""
CHANGES_CHARACTERS_MAX: Final = 256 << 20
"""Characters of the documents of these changes."""
DECODED_AT_ONCE: Final = 100
"""Objects of a list that are read with one query."""
ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
_NEXT: Final = (
    update(COUNTERS)
    .where(COUNTERS.c.id == 1)
    .values(version=COUNTERS.c.version + 1)
    .returning(COUNTERS.c.version)
)
_VERSION: Final = select(COUNTERS.c.version)
# Built once: building a statement costs more than executing it.
_OF_KEY: Final = ("api_group", "kind", "namespace", "name")
_IS: Final = and_(*(OBJECTS.c[name] == bindparam(f"key_{name}") for name in _OF_KEY))
_NAMES: Final = select(OBJECTS.c.namespace, OBJECTS.c.name, OBJECTS.c.version)
_DOCUMENT: Final = select(OBJECTS.c.version, OBJECTS.c.document).where(_IS)
_ADD: Final = insert(OBJECTS)
_REPLACE: Final = (
    update(OBJECTS).where(_IS).values(version=bindparam("new_version"), document=bindparam("new_document"))
)
_REMOVE: Final = delete(OBJECTS).where(_IS)
_ADD_CHANGE: Final = insert(CHANGES)
_NOTIFY: Final = text("SELECT pg_notify(:channel, :version)")


class SqlResources:
    """The `ResourceStore` of the gateway."""

    def __init__(self, database: Database, feed: Feed, *, changes_max: int = CHANGES_MAX) -> None:
        self._database: Final = database
        self._feed: Final = feed
        self._changes_max: Final = changes_max
        # Trimming at each write would be a delete for each write. The table exceeds its limit by a fortieth
        # at most.
        self._trim_every: Final = max(1, changes_max // 40)
        self._decoded: Final = Decoded()
        names = (OBJECTS.c.namespace, OBJECTS.c.name)
        # The order of code points, like Python's. SQLite has no other one; PostgreSQL has that of its locale.
        self._order: Final = [each.collate("C") for each in names] if database.postgresql else list(names)
        self._untrimmed = 0
        """Characters of changes that were written since `CHANGES_CHARACTERS_MAX` was last checked."""

    async def get(self, key: Key) -> Mapping[str, object] | None:
        """Return the object; None if it does not exist."""
        row = await self._database.read(partial(_found, key))
        if row is None:
            return None
        kept = self._decoded.get(key, row.version)
        if kept is not None or len(row.document) <= INLINE_CHARACTERS:
            return kept or read(row.document)
        # In a thread, also with PostgreSQL. The next reader of this version finds it in the cache.
        decoded = await asyncio.to_thread(read, row.document)
        self._decoded.keep(key, row.version, decoded, len(row.document))
        return decoded

    async def list(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
    ) -> tuple[int, Sequence[Mapping[str, object]]]:
        """Return the version of the list, and the objects of a kind, sorted by namespace and name."""
        wanted = _of(group, kind, namespace)

        def found(connection: Connection) -> tuple[int, Sequence[Mapping[str, object]]]:
            version = connection.execute(_VERSION).scalar_one()
            return version, self._objects(connection, group, kind, connection.execute(_NAMES.where(wanted)))

        return await self._database.read(found)

    async def part(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[int, Sequence[Mapping[str, object]], int]:
        """Return the version of the list, its first `limit` objects after a namespace and name, and how many
        follow them.
        """
        order = self._order
        wanted = _of(group, kind, namespace)
        if after is not None:
            wanted = and_(wanted, tuple_(*order) > after)
        chosen = _NAMES.where(wanted).order_by(*order).limit(limit)
        all_of_them = select(func.count()).select_from(OBJECTS).where(wanted)

        def found(connection: Connection) -> tuple[int, Sequence[Mapping[str, object]], int]:
            version = connection.execute(_VERSION).scalar_one()
            rows = connection.execute(chosen).all()
            count = connection.execute(all_of_them).scalar_one() if len(rows) == limit else len(rows)
            return version, self._objects(connection, group, kind, rows), count - len(rows)

        return await self._database.read(found)

    def _objects(
        self, connection: Connection, group: str, kind: str, rows: Iterable[Row[Any, Any, Any]]
    ) -> Sequence[Mapping[str, object]]:
        """The objects of rows of `_NAMES`, sorted."""
        # Sorted here as well, because the order of the database may depend on its locale.
        versions = {
            Key(group, kind, row.namespace, row.name): row.version
            for row in sorted(rows, key=lambda row: (row.namespace, row.name))
        }
        objects = {
            key: object_
            for key, of in versions.items()
            if (object_ := self._decoded.get(key, of)) is not None
        }
        missing = [key for key in versions if key not in objects]
        for start in range(0, len(missing), DECODED_AT_ONCE):
            # In parts: one query with the documents of a large list would hold all of them in memory twice.
            objects |= self._decode(connection, missing[start : start + DECODED_AT_ONCE])
        return [objects[key] for key in versions]

    def _decode(self, connection: Connection, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, object]]:
        """Read objects of one kind. Objects that no longer exist are missing in the result."""
        group, kind = keys[0].group, keys[0].kind
        names, namespaces = {key.name for key in keys}, {key.namespace for key in keys}
        named = and_(OBJECTS.c.name.in_(names), OBJECTS.c.namespace.in_(namespaces))
        wanted = and_(OBJECTS.c.api_group == group, OBJECTS.c.kind == kind, named)
        columns = (OBJECTS.c.namespace, OBJECTS.c.name, OBJECTS.c.version, OBJECTS.c.document)
        among, found = set(keys), {}
        for row in connection.execute(select(*columns).where(wanted)):
            key = Key(group, kind, row.namespace, row.name)
            if key in among:
                found[key] = self._read(row.document)
                self._decoded.keep(key, row.version, found[key], len(row.document))
        return found

    async def write(
        self,
        key: Key,
        object_: Mapping[str, object] | None,
        *,
        expected_version: int | None,
    ) -> Mapping[str, object] | None:
        """Store an object, or delete it (None). Returns it with its new `metadata.resourceVersion`.

        `expected_version`: 0 if the object must not exist; None for any version.

        Raises:
            ConflictError: the object has another version.
            UnavailableError: the database is not available.
        """

        def put(connection: Connection) -> Mapping[str, object]:
            version = connection.execute(_NEXT).scalar_one()
            row = _found(key, connection)
            # After `_NEXT`, which took the lock: no other write can come between the check and the write.
            _check(key, row, expected_version)
            if object_ is None and row is None:
                raise Undone(None)
            return self._put(connection, key, object_, row, version)

        stored = await self._database.write(put, together=True)
        self._feed.wake()
        return stored

    async def update(
        self,
        objects: Mapping[Key, tuple[Mapping[str, object], int]],
    ) -> Mapping[Key, Mapping[str, object]]:
        """Store several objects if they have the given versions (0: must not exist). Returns the stored
        objects.

        Raises:
            UnavailableError: the database is not available.
        """

        def put(connection: Connection) -> Mapping[Key, Mapping[str, object]]:
            done: dict[Key, Mapping[str, object]] = {}
            version: int | None = connection.execute(_NEXT).scalar_one()  # this statement also takes the lock
            for key, (object_, expected) in objects.items():
                row = _found(key, connection)
                if (row.version if row else 0) != expected:
                    continue
                if version is None:
                    version = connection.execute(_NEXT).scalar_one()
                done[key] = self._put(connection, key, object_, row, version)
                version = None
            if not done:
                raise Undone(done)
            return done

        stored = await self._database.write(put, together=True)
        self._feed.wake()
        return stored

    async def remove(self, keys: Mapping[Key, int | None]) -> Sequence[Mapping[str, object]]:
        """Delete several objects if they have the given versions (None: any version). Returns the deleted
        objects.

        Raises:
            UnavailableError: the database is not available.
        """

        def delete_(connection: Connection) -> Sequence[Mapping[str, object]]:
            gone: list[Mapping[str, object]] = []
            version: int | None = connection.execute(_NEXT).scalar_one()  # this statement also takes the lock
            for key, expected in keys.items():
                row = _found(key, connection)
                if row is None or (expected is not None and row.version != expected):
                    continue
                if version is None:
                    version = connection.execute(_NEXT).scalar_one()
                gone.append(self._put(connection, key, None, row, version))
                version = None
            if not gone:
                raise Undone(gone)
            return gone

        deleted = await self._database.write(delete_, together=True)
        self._feed.wake()
        return deleted

    def _put(
        self,
        connection: Connection,
        key: Key,
        object_: Mapping[str, object] | None,
        row: Row[Any, Any] | None,
        version: int,
    ) -> Mapping[str, object]:
        """Write within a transaction that holds the lock. `row`: the stored object; None if it does not
        exist.
        """
        stored = _versioned(self._read(row.document) if object_ is None and row else object_ or {}, version)
        document = self._database.compute(partial(written, stored)) if is_large(stored) else written(stored)
        if object_ is None:
            connection.execute(_REMOVE, _key(key))
        elif row is None:
            connection.execute(_ADD, {**_columns(key), "version": version, "document": document})
        else:
            connection.execute(_REPLACE, {**_key(key), "new_version": version, "new_document": document})
        type_ = DELETED if object_ is None else MODIFIED if row else ADDED
        previous = row.document if row else None
        entry = {"version": version, "type": type_, "document": document, "previous": previous}
        connection.execute(_ADD_CHANGE, {**_columns(key), **entry})
        if version % self._trim_every == 0:
            _trim(connection, version - self._changes_max)
        self._untrimmed += len(document) + len(previous or "")
        # Summing the sizes reads the whole table, so this is done only after much was written.
        if self._untrimmed > CHANGES_CHARACTERS_MAX // 4:
            _trim(connection, self._too_much(connection))
            self._untrimmed = 0
        if self._database.postgresql:
            # In the transaction: PostgreSQL sends it with the commit, so a replica that reads then finds the
            # change.
            connection.execute(_NOTIFY, {"channel": NOTICES, "version": str(version)})
        return stored

    def _read(self, document: str) -> Mapping[str, object]:
        """Decode a document within the work of the database."""
        is_small = len(document) <= INLINE_CHARACTERS
        return read(document) if is_small else self._database.compute(partial(read, document))

    def _too_much(self, connection: Connection) -> int:
        """Return the version up to which changes must be removed for `CHANGES_CHARACTERS_MAX`; 0:
        no change.
        """
        size = func.length(CHANGES.c.document) + func.coalesce(func.length(CHANGES.c.previous), 0)
        total = 0
        for row in connection.execute(
            select(CHANGES.c.version, size.label("size")).order_by(CHANGES.c.version.desc()),
        ):
            total += row.size
            if total > CHANGES_CHARACTERS_MAX:
                return int(row.version)
        return 0

    def watch(self, group: str, kind: str, after: int, *, in_turns: bool = False) -> AsyncIterator[Change]:
        """Yield the changes of a kind after a version, in order, until the store is closed. An empty `kind`:
        all kinds. `in_turns`: see `ResourceStore.watch`.

        Raises:
            GoneError: changes after this version were removed, or the version is greater than the store's.
            UnavailableError: the database is not available.
        """
        return self._feed.watch(group, kind, after, in_turns=in_turns)


def _trim(connection: Connection, version: int) -> None:
    """Remove the changes up to a version."""
    connection.execute(delete(CHANGES).where(CHANGES.c.version <= version))
    connection.execute(update(COUNTERS).where(COUNTERS.c.trimmed < version).values(trimmed=version))


def _of(group: str, kind: str, namespace: str | None) -> ColumnElement[bool]:
    wanted = and_(OBJECTS.c.api_group == group, OBJECTS.c.kind == kind)
    return wanted if namespace is None else and_(wanted, OBJECTS.c.namespace == namespace)


def _found(key: Key, connection: Connection) -> Row[Any, Any] | None:
    return connection.execute(_DOCUMENT, _key(key)).one_or_none()


def _key(key: Key) -> dict[str, str]:
    return {f"key_{name}": value for name, value in _columns(key).items()}


def _columns(key: Key) -> dict[str, str]:
    return {"api_group": key.group, "kind": key.kind, "namespace": key.namespace, "name": key.name}


def _check(key: Key, row: Row[Any, Any] | None, expected: int | None) -> None:
    found = row[0] if row else 0
    if expected is not None and expected != found:
        has = f"has version {found}, not {expected}" if found else "does not exist any more"
        problem = "exists already" if expected == 0 else has
        message = f'{key.kind} "{key.namespace}/{key.name}" {problem}'
        raise ConflictError(message)


def _versioned(object_: Mapping[str, object], version: int) -> dict[str, object]:
    metadata = object_.get("metadata")
    return {
        **object_,
        "metadata": {**(metadata if isinstance(metadata, Mapping) else {}), "resourceVersion": str(version)},
    }
