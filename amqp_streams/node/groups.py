"""The consumer groups of all logs: one `Ownership` for each log, with its epochs on the disk.

Spec: Event Streams 4.5.

Law: each change of an ownership is passed to `changed`, in order, unless the log was deleted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import StorageError
from amqp_streams.node.writes import Writes
from amqp_streams.storage.ports import States, StoredLog
from amqp_streams.streams.group_counts import GroupCounts, KnownBy
from amqp_streams.streams.groups.epochs import (
    PREFIX,
    epoch_change,
    epoch_group,
    epochs_prefix,
    read_epochs,
)
from amqp_streams.streams.groups.ownership import Change, Claim, GroupLink, Ownership, Record
from amqp_streams.streams.redirects import Redirected

ElsewhereOf: TypeAlias = Callable[[StoredLog], Redirected]
"""The partitions of a log that another container serves."""
Changed: TypeAlias = Callable[[StoredLog, Change, int], None]


class Groups:
    """The partition owners of all logs. The `Ownership` of a log is created at its first use.

    `counts`: the groups that it knows; those with a cursor are added from outside.
    """

    def __init__(  # noqa: PLR0917  all of it is needed
        self,
        states: States,
        writes: Writes,
        settings: GroupSettings,
        limits: Limits,
        elsewhere: ElsewhereOf,
        changed: Changed,
    ) -> None:
        self._states = states
        self._writes = writes
        self._settings = settings
        self._limits = limits
        self._elsewhere = elsewhere
        self._changed = changed
        self._owned: dict[str, tuple[StoredLog, Ownership]] = {}
        self._queue: deque[tuple[StoredLog, Change]] = deque()
        self._at_work = False
        self.counts = GroupCounts()
        # Of all logs at once: a search for each log, at its first use, would be long with many logs.
        for key, _ in states.items(PREFIX):
            self.counts.add(*epoch_group(key), KnownBy.CLAIM)

    def of(self, log: StoredLog) -> Ownership:
        """The groups of a log."""
        found = self._known(log)
        if found is None:
            # Read from the disk's states: a restart must not allow an epoch that an earlier claim exceeded.
            epochs = read_epochs(log.incarnation, self._states.items(epochs_prefix(log.incarnation)))
            ownership = Ownership(
                len(log.partitions),
                self._settings,
                groups_max=self._limits.groups,
                waiting_max=self._limits.group_waiting,
                epochs=epochs,
                on_known=partial(self._count, log.incarnation),
            )
            self._owned[log.incarnation] = log, ownership
            found = self._known(log)
            assert found is not None, "the entry was added above"
        return found

    def claim(self, log: StoredLog, claim: Claim, now_ms: int) -> tuple[GroupLink, list[Change]]:
        """A link asks to join a group; call `carry_out` with the changes once the link is registered.

        Raises PeerError.
        """
        return self.of(log).claim(claim, now_ms)

    def release(self, log: StoredLog, link: GroupLink, now_ms: int) -> None:
        """Release the partition of a link that has ended."""
        found = self._known(log)
        if found is not None:
            self.carry_out(log, found.release(link, now_ms), now_ms)

    def tick(self, now_ms: int) -> None:
        """Called regularly with the current time."""
        # A list: an ownership may be removed while the changes are carried out.
        for log in [log for log, ownership in self._owned.values() if ownership.groups()]:
            self.carry_out(log, self.of(log).tick(now_ms), now_ms)

    def carry_out(self, log: StoredLog, changes: Sequence[Change], now_ms: int) -> None:
        """Record epochs and pass on the other changes. Further changes that result are appended to the queue.

        A refused link may free its partition for the next waiting link, and so on. A queue avoids deep
        recursion there.
        """
        self._queue.extend((log, change) for change in changes)
        if self._at_work:
            return
        self._at_work = True
        try:
            while self._queue:
                of_log, change = self._queue.popleft()
                if isinstance(change, Record):
                    self._record(of_log, change, now_ms)
                else:
                    self._changed(of_log, change, now_ms)
        finally:
            self._at_work = False

    def remove(self, log: StoredLog, group: str) -> None:
        """Remove a group without links, and its epochs."""
        self.of(log).remove(group)
        epochs = read_epochs(log.incarnation, self._states.items(epochs_prefix(log.incarnation)))
        self._erase(
            key
            for name, index in epochs
            if name == group
            for key in epoch_change(log.incarnation, group, index, 0)
        )

    def leave(self, log: StoredLog) -> None:
        """Pass no more changes on: the log was deleted with its groups."""
        self._owned.pop(log.incarnation, None)

    def release_all(self, incarnation: str) -> None:
        """Forget the groups of a deleted log, whose epochs are removed elsewhere."""
        self._owned.pop(incarnation, None)
        self.counts.forget(incarnation)

    def forget(self, incarnation: str) -> None:
        """Remove the epochs of a deleted log."""
        self.counts.forget(incarnation)
        self._erase(key for key, _ in self._states.items(epochs_prefix(incarnation)))

    def _known(self, log: StoredLog) -> Ownership | None:
        found = self._owned.get(log.incarnation)
        if found is None:
            return None
        found[1].elsewhere = self._elsewhere(log).keys()
        return found[1]

    def _count(self, incarnation: str, group: str, known: bool) -> None:
        (self.counts.add if known else self.counts.remove)(incarnation, group, KnownBy.CLAIM)

    def _erase(self, keys: Iterable[str]) -> None:
        changes = dict.fromkeys(keys)
        if changes:
            self._writes.write(changes)

    def _record(self, log: StoredLog, change: Record, now_ms: int) -> None:
        then = partial(self._recorded, log, change.link)
        try:
            self._writes.write(
                epoch_change(log.incarnation, change.group, change.partition, change.epoch), then
            )
        # The write was refused at once: report it in the same way as a write that failed later.
        except StorageError as error:
            then(error, now_ms)

    def _recorded(self, log: StoredLog, link: GroupLink, failure: StorageError | None, now_ms: int) -> None:
        found = self._known(log)
        # The log may have been deleted while the disk was busy.
        if found is not None:
            self.carry_out(log, found.recorded(link, failure, now_ms), now_ms)
