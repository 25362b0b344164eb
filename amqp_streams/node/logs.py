"""The logs of a node by their addresses, made on demand where that is wanted, and what went through them."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError
from amqp_streams.log_settings import LOG_NAME
from amqp_streams.policy import Right
from amqp_streams.storage.ports import Store, StoredLog, Use
from amqp_streams.streams.access import EVERYTHING, Permissions

_COMPARED_MAX: Final = 500
"""Names that an unknown one is compared with."""
_NAME_CHARACTERS_MAX: Final = 64


@dataclass(slots=True)
class LogCounters:
    """Events and bytes of one log since the process started."""

    events_in: int = 0
    bytes_in: int = 0
    events_out: int = 0
    bytes_out: int = 0
    repeated: int = 0
    """Events of numbered producers that were accepted and not stored, because they were stored before."""


class Logs:
    """The logs of a store."""

    def __init__(self, store: Store, new_id: Callable[[], str], *, auto_create_partitions: int, partitions_max: int) -> None:
        self._store = store
        self._new_id = new_id
        self._auto_create_partitions = auto_create_partitions
        self._partitions_max = partitions_max
        self.counters: dict[str, LogCounters] = {name: LogCounters() for name in store.logs}

    def at(self, address: str, permissions: Permissions = EVERYTHING) -> StoredLog:
        """The log at an address, made now if the node makes logs on demand and these permissions allow it. Raises PeerError: none."""
        log = self._store.logs.get(address)
        if log is not None:
            return log
        shown = address[:128]
        if self._auto_create_partitions and LOG_NAME.fullmatch(address):
            if not permissions.allows(Right.MANAGE, address):
                refusal = permissions.refusal(Right.MANAGE, address)
                raise PeerError(refusal.condition, f"there is no log {shown!r}, and to make it on demand: {refusal.description}")
            return self.create(address, LogSettings(partitions=self._auto_create_partitions))
        raise PeerError(names.NOT_FOUND, f"there is no log {shown!r}{self._advice(address, permissions)}")

    def _advice(self, address: str, permissions: Permissions) -> str:
        """What to do about an address without a log: another name, or make it, unless it cannot be the name of a log."""
        known = [name for name in islice(self._store.logs, _COMPARED_MAX) if permissions.sees(name)]
        close = get_close_matches(address[:_NAME_CHARACTERS_MAX], known, n=1, cutoff=0.7)
        if close:
            return f"; did you mean {close[0]!r}?"
        if not LOG_NAME.fullmatch(address):
            return ", and this is not a valid name: use the name of a log, '$management', or the name of a log followed by '/$info'"
        return f": amqp-streams log create {address} --partitions 4"

    def uses(self) -> dict[str, Use]:
        """What is used of the limit on partitions."""
        return {"partitions": Use(sum(len(log.partitions) for log in self._store.logs.values()), self._partitions_max)}

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Make a log. Raises what `Node.create` does."""
        if sum(len(log.partitions) for log in self._store.logs.values()) + settings.partitions > self._partitions_max:
            description = f"this node serves {self._partitions_max} partitions in all: delete a log, or raise its limit 'partitions'"
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        log = self._store.create(name, settings, incarnation=self._new_id())
        self.counters[name] = LogCounters()
        return log

    def delete(self, name: str) -> None:
        """Remove a log and its events. Raises StorageError: the disk failed."""
        self._store.delete(name)
        self.counters.pop(name, None)
