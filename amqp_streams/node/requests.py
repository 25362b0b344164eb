"""Carries out requests to `$management`: a table of operations for each type.

Spec: AMQP Management 1.0 (working draft).

Law: what an answer says about a change is durable (`tests/amqp_streams/node/test_durable_answers.py`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, SettingRefusedError, StorageError
from amqp_streams.node.consumers import Consumers
from amqp_streams.node.logs import Logs
from amqp_streams.node.lookups import Answering, asked, refreshed, sought
from amqp_streams.node.writes import Wait, Writes
from amqp_streams.policy import Right
from amqp_streams.storage.ports import Partition, Store, StoredLog
from amqp_streams.storage.questions import Find, Update
from amqp_streams.streams import info, management
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import named_partition
from amqp_streams.streams.management import Answer, Extents, Request, RequestError
from amqp_streams.streams.redirects import Redirected
from amqp_streams.streams.steps import PARTITIONS_A_STEP, Steps
from amqp_streams.wire.types import Value

RequestSteps: TypeAlias = Generator[Wait | None, None, Answer]
"""Like `Steps`. The step after a `Wait` is due when the wait is over."""
Operations: TypeAlias = Mapping[str, Callable[[Request], Answer | RequestSteps]]
EXTENTS_MAX: Final = 10_000
"""The most partitions of one answer about extents."""
PAGE_PARTITIONS_MAX: Final = 2048
"""The most partitions on one page of a list, unless a single item has more."""
T = TypeVar("T")


def carry_out(types: Mapping[str, Operations], request: Request) -> RequestSteps:
    """The answer of the operation on the type of a request, or an error.

    A request without a type is about logs.
    """
    operations = types.get(request.type or names.LOG_TYPE)
    try:
        if operations is None:
            known = ", ".join(map(repr, types))
            raise RequestError(
                management.NOT_IMPLEMENTED, f"unknown type {request.type[:64]!r}: known are {known}"
            )
        operation = operations.get(request.operation)
        if operation is None:
            description = f"unknown operation {request.operation[:64]!r}: known are {', '.join(operations)}"
            raise RequestError(management.NOT_IMPLEMENTED, description)
        # After type and operation: a client of another version learns first that it asks for the wrong thing.
        if not request.well_formed:
            raise RequestError(
                management.BAD_REQUEST, "the body must be a map in an amqp-value section, or absent"
            )
        outcome = operation(request)
        # Short operations answer at once; long ones pause between their steps.
        return outcome if isinstance(outcome, Answer) else (yield from outcome)
    except RequestError as error:
        return error.answer
    # Management has status codes and not AMQP conditions.
    except PeerError as error:
        return Answer(
            management.NOT_FOUND if error.condition == names.NOT_FOUND else management.FORBIDDEN,
            error.description,
        )
    except SettingRefusedError as error:
        return Answer(management.BAD_REQUEST, str(error))
    except StorageError as error:
        return Answer(management.SERVER_ERROR, str(error))


def durable(writes: Writes, change: Callable[[], Answer | Steps[Answer]]) -> RequestSteps:
    """The answer of a change, when the change is on the disk."""
    try:
        outcome = change()
        answer = outcome if isinstance(outcome, Answer) else (yield from outcome)
    except RequestError as error:
        # The object may be missing because of an earlier change that is not on the disk yet.
        if error.answer.status != management.NOT_FOUND:
            raise
        answer = error.answer
    wait = writes.settled()
    if not wait.over:
        yield wait
    if wait.failure is not None:
        description = f"the change is not on the disk, send the request again: {wait.failure}"
        raise StorageError(description)
    return answer


def listed(
    name: str,
    items: Sequence[T],
    request: Request,
    *,
    width: Callable[[T], int],
    describe: Callable[[T], Steps[dict[Value, Value]]],
) -> Steps[Answer]:
    """Answer a QUERY with `items` from the request's offset on, within its count and `PAGE_PARTITIONS_MAX`.

    `width` returns the number of partitions of an item. The answer has at least one item; its `next` is the
    offset of the next page, if one exists.
    """
    described: list[Value] = []
    # `wide` bounds the answer; `since` bounds the time until other work of the loop runs.
    wide = since = 0
    for item in items[request.offset :]:
        wide += width(item)
        if (described and wide > PAGE_PARTITIONS_MAX) or (
            request.count is not None and len(described) >= request.count
        ):
            break
        described.append(info.encoded((yield from describe(item))))
        # One more for each item: a list of empty items must pause as well.
        since += width(item) + 1
        if since >= PARTITIONS_A_STEP:
            since = 0
            yield
    end = request.offset + len(described)
    body: dict[Value, Value] = {name: described}
    return Answer(management.OK, "OK", body | {names.QUERY_NEXT: end} if end < len(items) else body)


@dataclass(frozen=True, slots=True)
class LogRequests:
    """Operations on logs. `deleted` is called after a log was deleted.

    `consumers.ending` is called before, and the log is deleted after the returned wait.
    `elsewhere` returns the partitions that other containers serve.
    """

    store: Store
    logs: Logs
    sync: str
    consumers: Consumers
    deleted: Callable[[StoredLog], None]
    elsewhere: Callable[[StoredLog], Redirected]

    def operations(self) -> Operations:
        """The operations by name."""
        return {
            "CREATE": self.create,
            "READ": self.read,
            "QUERY": self.query,
            "UPDATE": self.update,
            "DELETE": self.delete,
            names.EXTENTS: self.extents,
        }

    def create(self, request: Request) -> RequestSteps:
        """Create a log."""
        name = management.requested_name(request)
        request.permissions.require(Right.MANAGE, name)
        settings = management.requested_settings(request, LogSettings())
        # After the check of the right: a user without it must not learn which logs exist.
        if name in self.store.logs:
            yield from self._refreshed(name, request.connection)
        if name in self.store.logs:
            raise RequestError(management.CONFLICT, f"log {name!r} already exists")
        try:
            log = yield from self.logs.creating(name, settings, request.connection)
        except ValueError:  # another request, or another node, has created it meanwhile
            raise RequestError(management.CONFLICT, f"log {name!r} already exists") from None
        return Answer(management.CREATED, "created", (yield from self._described(log)))

    def read(self, request: Request) -> RequestSteps:
        """The settings and state of a log."""
        name = management.requested_name(request)
        if not request.permissions.sees(name):
            raise request.permissions.refusal(Right.INFO, name)
        yield from self._refreshed(name, request.connection)
        return Answer(management.OK, "OK", (yield from self._described(self._found(name))))

    def query(self, request: Request) -> Steps[Answer]:
        """The logs that the user may see."""
        visible = [log for name, log in sorted(self.store.logs.items()) if request.permissions.sees(name)]
        return listed(
            "logs", visible, request, width=lambda log: len(log.partitions), describe=self._described
        )

    def extents(self, request: Request) -> RequestSteps:
        """Start and end of the partitions of some logs, and the position of a time in them, in one answer."""
        wanted = management.requested_extents(request)
        found: list[tuple[StoredLog, Sequence[Partition]]] = []
        for number, name in enumerate(wanted.logs, 1):
            if request.permissions.sees(name):
                yield from self._refreshed(name, request.connection)
            found += self._asked(request, name, wanted)
            if number % PARTITIONS_A_STEP == 0:
                yield None
        total = sum(len(partitions) for _, partitions in found)
        # Before anything is described: the size of the answer is the client's choice.
        if total > EXTENTS_MAX:
            description = (
                f"the request asks for {total} partitions; an answer has at most {EXTENTS_MAX}: ask for fewer"
                " logs"
            )
            raise RequestError(management.BAD_REQUEST, description)
        return (yield from self._extents(request, found, wanted.after_ms))

    def _asked(
        self, request: Request, name: str, wanted: Extents
    ) -> list[tuple[StoredLog, Sequence[Partition]]]:
        if not request.permissions.sees(name):
            raise request.permissions.refusal(Right.INFO, name)
        # A list of logs may be older than this request.
        if wanted.missing_ok and name not in self.store.logs:
            return []
        log = self._found(name)
        return [
            (
                log,
                (
                    log.partitions
                    if wanted.partitions is None
                    else [named_partition(log, each) for each in wanted.partitions]
                ),
            )
        ]

    def _extents(
        self,
        request: Request,
        found: Sequence[tuple[StoredLog, Sequence[Partition]]],
        after_ms: int | None,
    ) -> RequestSteps:
        extents: list[Value] = []
        for log, partitions in found:
            elsewhere, entries = self.elsewhere(log), list[Value]()
            for first in range(0, len(partitions), PARTITIONS_A_STEP):
                step = partitions[first : first + PARTITIONS_A_STEP]
                positions = yield from sought(step, after_ms, request.connection)
                entries += [
                    info.encoded(info.partition_extent(each, after_ms, elsewhere, positions.get(each.index)))
                    for each in step
                ]
                yield None
            extents.append(info.log_extent(log, entries, self._use(log, request.permissions)))
        return Answer(management.OK, "OK", {names.EXTENT_LOGS: extents})

    def _use(self, log: StoredLog, permissions: Permissions) -> info.LogUse:
        """Searches nothing: an answer may have a thousand logs, each with thousands of links and groups."""
        counters = self.logs.counters.get(log.name)
        events_out = 0 if counters is None else counters.events_out
        # Who reads a log is for those who manage it, as in the lists of groups, cursors and connections.
        if not permissions.allows(Right.MANAGE, log.name):
            return info.LogUse(events_out)
        # Of nodes that share a store, none knows the groups.
        groups = None if self.store.others is not None else self.consumers.groups.counts.of(log.incarnation)
        return info.LogUse(events_out, self.consumers.attached(log.name), groups)

    def update(self, request: Request) -> RequestSteps:
        """Change the settings of a log."""
        log = yield from self._managed(request)
        change = self._update(request, log.name)
        updated = yield from self.logs.changing(log.name, change, request.connection)
        described = yield from self._described(updated)
        return Answer(
            management.OK, "updated", described, management.differences(log.settings, updated.settings)
        )

    def _update(self, request: Request, name: str) -> Answering[StoredLog]:
        # Read again: an earlier request may have changed other settings since this request was checked.
        log = self._found(name)
        settings = management.requested_settings(request, log.settings)
        # Events with a key would change their partition: see `routing.py`.
        if settings.partitions != log.settings.partitions:
            raise RequestError(
                management.BAD_REQUEST, "the number of partitions of a log is fixed when it is created"
            )
        try:
            updated = yield from asked(self.store, Update(name, settings), request.connection)
        except KeyError:
            raise _missing(name) from None
        assert updated is not None, "the answer to an update is the log"
        return updated

    def delete(self, request: Request) -> RequestSteps:
        """Delete a log, its events and its cursors."""
        marked = yield from self._managed(request)
        # In this order: a crash after the mark lets the next start complete what is missing. Without the mark
        # (a full disk), cursors of the deleted log may stay in the file, which is better than the log itself.
        yield self.consumers.ending(marked)
        change = self._delete(marked, request.connection)
        yield from self.logs.changing(marked.name, change, request.connection)
        return Answer(management.NO_CONTENT, "deleted", {})

    def _delete(self, marked: StoredLog, connection: int | None) -> Answering[None]:
        log = self._found(marked.name)
        if log.incarnation != marked.incarnation:  # another request has deleted and created it meanwhile
            raise RequestError(management.NOT_FOUND, f"log {log.name!r} was deleted by another request")
        try:
            yield from self.logs.deleting(log.name, connection)
        except KeyError:
            raise _missing(log.name) from None
        self.deleted(log)

    def _managed(self, request: Request) -> Answering[StoredLog]:
        name = management.requested_name(request)
        request.permissions.require(Right.MANAGE, name)
        yield from self._refreshed(name, request.connection)
        return self._found(name)

    def _refreshed(self, name: str, connection: int | None) -> Answering[None]:
        """Let the store learn what other nodes did with the log of this name, if it exists."""
        log = self.store.logs.get(name)
        if log is None:
            log = yield from asked(self.store, Find(name), connection)
        if log is not None:
            yield from refreshed(self.store, log, connection)

    def _found(self, name: str) -> StoredLog:
        log = self.store.logs.get(name)
        if log is None:
            raise _missing(name)
        return log

    def _described(self, log: StoredLog) -> Steps[dict[Value, Value]]:
        described = yield from info.log_info(log, self.sync, self.elsewhere(log))
        return {"name": log.name, **management.described_settings(log.settings), **described}


def _missing(name: str) -> RequestError:
    return RequestError(management.NOT_FOUND, f"no log named {name!r}")
