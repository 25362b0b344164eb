"""Requests to `$management` carried out: one table of operations for each type. Spec: AMQP Management 1.0 (working draft)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.logs import Logs
from amqp_streams.policy import Right
from amqp_streams.storage.ports import Store, StoredLog
from amqp_streams.streams import info, management
from amqp_streams.streams.attach import named_partition
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.redirects import Places
from amqp_streams.wire.types import Value

Operations: TypeAlias = Mapping[str, Callable[[Request], Answer]]


def carry_out(types: Mapping[str, Operations], request: Request) -> Answer:
    """The answer to a request: what its operation on its type gives, or why that cannot be. A request without a type is about logs."""
    operations = types.get(request.type or names.LOG_TYPE)
    try:
        if operations is None:
            known = ", ".join(map(repr, types))
            raise RequestError(management.NOT_IMPLEMENTED, f"type {request.type[:64]!r} is unknown: {known}")
        operation = operations.get(request.operation)
        if operation is None:
            description = f"operation {request.operation[:64]!r} is unknown: {', '.join(operations)}"
            raise RequestError(management.NOT_IMPLEMENTED, description)
        if not request.well_formed:
            raise RequestError(management.BAD_REQUEST, "the body is a map in an amqp-value section, or missing")
        return operation(request)
    except RequestError as error:
        return error.answer
    except PeerError as error:
        return Answer(management.NOT_FOUND if error.condition == names.NOT_FOUND else management.FORBIDDEN, error.description)
    except StorageError as error:
        return Answer(management.SERVER_ERROR, str(error))


@dataclass(frozen=True, slots=True)
class LogRequests:
    """Operations on logs. `ending` is told of a log that is to go, `deleted` of one that is gone.

    `elsewhere` tells which partitions another container serves.
    """

    store: Store
    logs: Logs
    sync: str
    ending: Callable[[StoredLog], None]
    deleted: Callable[[StoredLog], None]
    elsewhere: Callable[[StoredLog], Places]

    def operations(self) -> Operations:
        """By name."""
        return {
            "CREATE": self.create,
            "READ": self.read,
            "QUERY": self.query,
            "UPDATE": self.update,
            "DELETE": self.delete,
            names.EXTENTS: self.extents,
        }

    def create(self, request: Request) -> Answer:
        """Make a log."""
        name = management.requested_name(request)
        request.permissions.require(Right.MANAGE, name)
        settings = management.requested_settings(request, LogSettings())
        if name in self.store.logs:
            raise RequestError(management.CONFLICT, f"log {name!r} exists already")
        return Answer(management.CREATED, "created", self._described(self.logs.create(name, settings)))

    def read(self, request: Request) -> Answer:
        """Settings and state of a log."""
        name = management.requested_name(request)
        if not request.permissions.sees(name):
            raise request.permissions.refusal(Right.INFO, name)
        return Answer(management.OK, "OK", self._described(self._found(name)))

    def query(self, request: Request) -> Answer:
        """The logs that whoever asks may know of."""
        sees = request.permissions.sees
        described: list[Value] = [self._described(log) for name, log in sorted(self.store.logs.items()) if sees(name)]
        return Answer(management.OK, "OK", {"logs": described})

    def extents(self, request: Request) -> Answer:
        """Where the partitions of some logs begin and end, and where a moment is in them: all in one answer."""
        wanted = management.requested_extents(request)
        extents: list[Value] = []
        for name in wanted.logs:
            if not request.permissions.sees(name):
                raise request.permissions.refusal(Right.INFO, name)
            if wanted.missing_ok and name not in self.store.logs:
                continue
            log = self._found(name)
            partitions = log.partitions if wanted.partitions is None else [named_partition(log, each) for each in wanted.partitions]
            extents.append(info.log_extent(log, partitions, wanted.after_ms, self.elsewhere(log)))
        return Answer(management.OK, "OK", {names.EXTENT_LOGS: extents})

    def update(self, request: Request) -> Answer:
        """Other settings for a log."""
        log = self._managed(request)
        settings = management.requested_settings(request, log.settings)
        if settings.partitions != log.settings.partitions:
            raise RequestError(management.BAD_REQUEST, "the number of partitions of a log is fixed when it is created")
        return Answer(management.OK, "updated", self._described(self.store.update(log.name, settings)))

    def delete(self, request: Request) -> Answer:
        """Remove a log, its events and what is kept about them."""
        log = self._managed(request)
        self.ending(log)
        self.logs.delete(log.name)
        self.deleted(log)
        return Answer(management.NO_CONTENT, "deleted", {})

    def _managed(self, request: Request) -> StoredLog:
        name = management.requested_name(request)
        request.permissions.require(Right.MANAGE, name)
        return self._found(name)

    def _found(self, name: str) -> StoredLog:
        log = self.store.logs.get(name)
        if log is None:
            raise RequestError(management.NOT_FOUND, f"there is no log {name!r}")
        return log

    def _described(self, log: StoredLog) -> dict[Value, Value]:
        return {"name": log.name, **management.described_settings(log.settings), **info.log_info(log, self.sync, self.elsewhere(log))}
