"""The logs of a node by address, created on demand if configured, and their counters."""

from collections import defaultdict
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
"""The most names that an unknown name is compared with."""
_NAME_CHARACTERS_MAX: Final = 64


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
    """The logs of a store."""

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

    def at(self, address: str, permissions: Permissions = EVERYTHING) -> StoredLog:
        """The log at an address, created now if that is configured and permitted.

        Raises:
            PeerError: it does not exist.
        """
        log = self._store.logs.get(address)
        if log is not None:
            self.counters[address]
            return log
        shown = address[:128]
        if self._auto_create_partitions and LOG_NAME.fullmatch(address):
            if not permissions.allows(Right.MANAGE, address):
                refusal = permissions.refusal(Right.MANAGE, address)
                raise PeerError(
                    refusal.condition,
                    f"no log named {shown!r}, and it cannot be created: {refusal.description}",
                )
            return self.create(address, LogSettings(partitions=self._auto_create_partitions))
        raise PeerError(names.NOT_FOUND, f"no log named {shown!r}{self._advice(address, permissions)}")

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
        """Create a log. Raises the same as `Node.create`."""
        if (
            sum(len(log.partitions) for log in self._store.logs.values()) + settings.partitions
            > self._partitions_max
        ):
            description = (
                f"this node serves at most {self._partitions_max} partitions: delete a log, or raise the"
                " limit 'partitions'"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        log = self._store.create(name, settings, incarnation=self._new_id())
        self.counters[name] = LogCounters()
        return log

    def delete(self, name: str) -> None:
        """Delete a log and its events. Raises StorageError: the disk failed."""
        self._store.delete(name)
        self.counters.pop(name, None)
