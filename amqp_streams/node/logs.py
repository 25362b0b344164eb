"""The logs of a node by address, created on demand if configured, and their counters."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.log_settings import LOG_NAME
from amqp_streams.node.lookups import Answering, asked, carried_out
from amqp_streams.node.writes import Wait
from amqp_streams.policy import Right
from amqp_streams.storage.ports import Store, StoredLog, Use
from amqp_streams.storage.questions import Create, Delete
from amqp_streams.streams.access import EVERYTHING, Permissions
from amqp_streams.streams.intake import AwaitedLogError
from amqp_streams.streams.steps import finish

_COMPARED_MAX: Final = 500
"""The most names that an unknown name is compared with."""
_NAME_CHARACTERS_MAX: Final = 64
T = TypeVar("T")


@dataclass(slots=True)
class LogCounters:
    """Events and bytes of one log since the process started."""

    events_in: int = 0
    bytes_in: int = 0
    events_out: int = 0
    bytes_out: int = 0
    repeated: int = 0
    """Events of idempotent producers that were accepted but not stored again."""


class Logs:
    """The logs of a store.

    Law: the changes of a log follow each other, so each change sees the results of the changes before it.
    """

    def __init__(
        self, store: Store, new_id: Callable[[], str], *, auto_create_partitions: int, partitions_max: int
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._auto_create_partitions = auto_create_partitions
        self._partitions_max = partitions_max
        # Other nodes create logs as well, which nothing reports.
        self.counters: dict[str, LogCounters] = defaultdict(LogCounters)
        self.counters.update({name: LogCounters() for name in store.logs})
        # How many partitions have the logs whose creation is in flight.
        self._creating = 0
        # By name of each log with a change in flight, the changes that wait for it.
        self._changing: dict[str, deque[Wait]] = {}
        # The names of logs with a change that has just ended: see `_next`.
        self._ended: deque[str] = deque()
        self._beginning = False

    def at(self, address: str, permissions: Permissions = EVERYTHING, *, can_wait: bool = False) -> StoredLog:
        """The log at an address, created now if that is configured and permitted.

        Raises:
            AwaitedLogError: the caller can wait, and `making` can create the log.
            PeerError: it does not exist.
        """
        log = self._store.logs.get(address)
        if log is not None:
            self.counters[address]
            return log
        shown = address[:128]
        if self._auto_create_partitions and LOG_NAME.fullmatch(address):
            self._require_creating(address, permissions)
            if can_wait:
                raise AwaitedLogError(address)
            with suppress(ValueError):  # its creation was in flight
                return self.create(address, self._created_settings)
            return self._store.logs[address]
        raise PeerError(names.NOT_FOUND, f"no log named {shown!r}{self._advice(address, permissions)}")

    def arriving(
        self, address: str, permissions: Permissions, connection: Hashable
    ) -> Answering[StoredLog | None]:
        """Create the log at an address that does not exist, if that is configured and permitted.

        Raises:
            PeerError: it is not permitted.
            StorageError: the store failed.
        """
        if not self._auto_create_partitions or not LOG_NAME.fullmatch(address):
            return None
        self._require_creating(address, permissions)
        with suppress(ValueError):  # another node, or another attach, was first
            return (yield from self.creating(address, self._created_settings, connection))
        return self._store.logs.get(address)

    def making(
        self, address: str, permissions: Permissions, connection: Hashable
    ) -> Answering[PeerError | StorageError | None]:
        """Create the log at an address, as `arriving` does. Returns why it cannot be created."""
        try:
            yield from self.arriving(address, permissions, connection)
        except (PeerError, StorageError) as error:
            return error
        return None

    @property
    def _created_settings(self) -> LogSettings:
        return LogSettings(partitions=self._auto_create_partitions)

    def _require_creating(self, address: str, permissions: Permissions) -> None:
        if not permissions.allows(Right.MANAGE, address):
            refusal = permissions.refusal(Right.MANAGE, address)
            raise PeerError(
                refusal.condition,
                f"no log named {address[:128]!r}, and it cannot be created: {refusal.description}",
            )

    def _advice(self, address: str, permissions: Permissions) -> str:
        """The advice for an unknown address: a similar name, a valid form, or how to create the log."""
        known = [name for name in islice(self._store.logs, _COMPARED_MAX) if permissions.sees(name)]
        # Slow for long texts and many names, so both are bounded.
        close = get_close_matches(address[:_NAME_CHARACTERS_MAX], known, n=1, cutoff=0.7)
        if close:
            return f"; did you mean {close[0]!r}?"
        if not LOG_NAME.fullmatch(address):
            return ", and this is not a valid address: use the name of a log, '$management', or NAME/$info"
        return f": amqp-streams log create {address} --partitions 4"

    def uses(self) -> dict[str, Use]:
        """How much of the limit on partitions is used."""
        return {
            "partitions": Use(
                sum(len(log.partitions) for log in self._store.logs.values()), self._partitions_max
            )
        }

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Create a log at once. Raises the same as `Node.create`."""
        return finish(self.creating(name, settings, None))

    def creating(self, name: str, settings: LogSettings, connection: Hashable) -> Answering[StoredLog]:
        """Create a log. Raises the same as `Node.create`. None as `connection`: the caller cannot wait."""
        return self.changing(name, self._create(name, settings, connection), connection)

    def _create(self, name: str, settings: LogSettings, connection: Hashable) -> Answering[StoredLog]:
        if name in self._store.logs:
            message = f"log {name} already exists"
            raise ValueError(message)
        count = sum(len(log.partitions) for log in self._store.logs.values()) + self._creating
        if count + settings.partitions > self._partitions_max:
            description = (
                f"this node serves at most {self._partitions_max} partitions: delete a log, or raise the"
                " limit 'partitions'"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        self._creating += settings.partitions
        try:
            log = yield from asked(self._store, Create(name, settings, self._new_id()), connection)
        finally:
            self._creating -= settings.partitions
        assert log is not None, "the answer to a creation is the log"
        self.counters[name] = LogCounters()
        return log

    def changing(self, name: str, change: Answering[T], connection: Hashable) -> Answering[T]:
        """What a change of the log `name` returns or raises.

        The change begins when the earlier changes of the log have ended. From then on it is completed, also
        if the client leaves. None as `connection`: the caller cannot wait, and the store orders the changes.
        """
        if connection is None:
            return (yield from change)
        waiting = self._changing.get(name)
        if waiting is None:
            self._changing[name] = deque()
        else:
            yield from self._turn(name, waiting)
        return (yield from carried_out(change, partial(self._next, name)))

    def _turn(self, name: str, waiting: deque[Wait]) -> Answering[None]:
        turn = Wait()
        waiting.append(turn)
        try:
            yield turn
        except GeneratorExit:  # the client has left, so the change never begins
            if turn.over:
                self._next(name)
            else:
                waiting.remove(turn)
            raise

    def _next(self, name: str) -> None:
        """Begin the next change of a log: a change of it has ended."""
        self._ended.append(name)
        # The next one may end at once, and call this method: the loop below takes its name as well.
        if self._beginning:
            return
        self._beginning = True
        try:
            while self._ended:
                ended = self._ended.popleft()
                waiting = self._changing[ended]
                if waiting:
                    waiting.popleft().ended(None, 0)
                else:
                    del self._changing[ended]
        finally:
            self._beginning = False

    def deleting(self, name: str, connection: Hashable) -> Answering[None]:
        """Delete a log and its events. None as `connection`: the caller cannot wait.

        Raises:
            KeyError: the log does not exist.
            StorageError: the disk failed.
        """
        yield from asked(self._store, Delete(name), connection)
        self.counters.pop(name, None)
