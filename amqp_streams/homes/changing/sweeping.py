"""Removes the states of logs that are gone for good, at their homes. Pure.

Law: a log is gone for good when two descriptions of all topics do not have its id, `Times.gone_ms` apart or
more, and none in between had it. A description that failed, or that has no topic at all, says nothing. So a
broker that is behind, a node with other `kafka.topics`, and a cluster that does not answer remove nothing.

States are looked at, and removed, in steps of bounded size.
"""

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.leases import Times
from amqp_streams.homes.owners import PREFIX as OWNER_PREFIX
from amqp_streams.homes.serving import LogOf, Serving
from amqp_streams.streams.consuming.cursors import PREFIX as CURSOR_PREFIX
from amqp_streams.streams.groups.epochs import PREFIX as EPOCH_PREFIX

INCARNATION_CHARACTERS: Final = 22
"""The id of a topic: 16 bytes in base64. It may contain a slash, so only its length tells where it ends."""
PREFIXES: Final = (CURSOR_PREFIX, EPOCH_PREFIX, OWNER_PREFIX)
LOOKED_A_STEP: Final = 2000
"""Keys that one step looks at, in about a millisecond."""
REMOVED_A_STEP: Final = 200
"""Keys that one step removes."""
UNKNOWN_MAX: Final = 10_000
"""Logs that one round looks for."""


def incarnation_in(key: str) -> str | None:
    """The incarnation of the log in the key of a state; None: the state is of no log, or of another kind."""
    if not key.startswith(PREFIXES):
        return None
    begin = key.index("/") + 1
    end = begin + INCARNATION_CHARACTERS
    return key[begin:end] if key[end : end + 1] == "/" else None


class Deciding(Protocol):
    """The homes of this node."""

    def deciding(self, bucket: int) -> Serving | None:
        """The home, if it is here, and neither waits for the lease of another one nor leaves."""


class Sweeping:
    """`log_of`: the log that this node has, if any."""

    def __init__(self, here: Deciding, log_of: LogOf, times: Times) -> None:
        self.removed = 0
        """How many states were removed."""
        self._here: Final = here
        self._log_of: Final = log_of
        self._times: Final = times
        self._since_ms: Final[dict[str, int]] = {}
        """Logs that the last description did not have, and the time of the first of them."""
        self._unknown: set[str] = set()
        self._begin_ms: int | None = None
        self._work: Iterator[None] | None = None
        self._waits = False

    def tick(self, now_ms: int) -> bool:
        """Do one step. Returns whether the ids of all topics are needed now, for `described`."""
        if self._begin_ms is None:
            self._begin_ms = now_ms + self._times.sweep_ms
        if self._waits:
            return False
        if self._work is None:
            if now_ms < self._begin_ms:
                return False
            self._begin_ms = now_ms + self._times.sweep_ms
            self._unknown.clear()
            self._work = self._look()
        if next(self._work, self) is self:
            self._work = None
        return self._waits

    def described(self, ids: Collection[str] | None, now_ms: int) -> None:
        """The ids of all topics of the cluster; None: they cannot be described now."""
        unknown, self._unknown, self._waits = self._unknown, set(), False
        if not ids:
            return
        gone = []
        for incarnation in unknown:
            if incarnation in ids:
                self._since_ms.pop(incarnation, None)
            elif now_ms - self._since_ms.setdefault(incarnation, now_ms) >= self._times.gone_ms:
                gone.append(incarnation)
        if gone:
            self._work = self._remove(frozenset(gone))

    def _look(self) -> Iterator[None]:
        """Find the logs that this node does not have."""
        for bucket in range(BUCKETS):
            serving = self._here.deciding(bucket)
            # A copy: they change between steps.
            keys = [] if serving is None else list(serving.states.values)
            for first in range(0, len(keys), LOOKED_A_STEP):
                found = set(map(incarnation_in, keys[first : first + LOOKED_A_STEP]))
                for each in found - self._unknown:
                    if each is not None and len(self._unknown) < UNKNOWN_MAX and self._log_of(each) is None:
                        self._unknown.add(each)
                yield
        for known in self._since_ms.keys() - self._unknown:
            del self._since_ms[known]
        self._waits = bool(self._unknown)

    def _remove(self, gone: frozenset[str]) -> Iterator[None]:
        for bucket in range(BUCKETS):
            serving = self._here.deciding(bucket)
            keys = [] if serving is None else list(serving.states.values)
            for first in range(0, len(keys), LOOKED_A_STEP):
                chosen = [key for key in keys[first : first + LOOKED_A_STEP] if incarnation_in(key) in gone]
                for begin in range(0, len(chosen), REMOVED_A_STEP):
                    # The home may have moved, and a log may have been found, between steps.
                    if serving is None or self._here.deciding(bucket) is not serving:
                        break
                    self._erase(serving, chosen[begin : begin + REMOVED_A_STEP])
                    yield
                yield

    def _erase(self, serving: Serving, keys: Collection[str]) -> None:
        of_log: dict[str, list[str]] = {}
        for key in keys:
            of_log.setdefault(incarnation_in(key) or "", []).append(key)
        for incarnation, own in of_log.items():
            # A node that reports a link has the log.
            if self._log_of(incarnation) is None and not _has_links(serving, incarnation):
                self.removed += _erase(serving, incarnation, own)


def _has_links(serving: Serving, incarnation: str) -> bool:
    """Whether a node reports a link to this log."""
    return any(
        each.wanted.incarnation == incarnation
        for session in serving.sessions.values()
        for each in session.known.values()
    )


def _erase(serving: Serving, incarnation: str, keys: Collection[str]) -> int:
    """Remove these states of a log that is gone and has no links. Returns how many there were."""
    serving.groups.release_all(incarnation)
    prefix = f"{CURSOR_PREFIX}{incarnation}/"
    ids = (each.removeprefix(prefix) for each in keys if each.startswith(prefix))
    found = (serving.cursors.by_id(incarnation, each) for each in ids)
    cursors = [each for each in found if each is not None]
    serving.forget(cursors)
    serving.cursors.remove(cursors)
    gone: dict[str, bytes | None] = {each: None for each in keys if serving.states.get(each) is not None}
    if gone:
        serving.writes.write(gone)
    return len(gone)
