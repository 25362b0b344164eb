"""[io] Creates and deletes the logs of Brokers and Channels.

The owner of each log is stored before the log is created. A log whose owner was deleted is deleted, even
after a crash, so a successor with the same name begins with an empty log. A log that does not answer does not
delay other logs.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from knative_gateway.controller.deciding.plan import LogNeed
from knative_gateway.controller.deciding.sources import keys_of, path_of
from knative_gateway.controller.mirror import version_of
from knative_gateway.errors import GatewayError, RefusedError, UnavailableError
from knative_gateway.ports import EventLog, Key, ResourceStore
from knative_gateway.resources.kinds import GATEWAY, LOG
from knative_gateway.resources.objects import Object, text, uid_of
from knative_gateway.running.supervising import Supervisor

AT_ONCE: Final = 8
"""Requests to the node in flight."""
PAUSE_S_MAX: Final = 60.0
"""The longest pause before a log is created again that the node refused."""
AWAIT_S: Final = 0.25
"""How often a worker that does not lead looks for a log that the leader creates."""

log = structlog.get_logger("knative_gateway.controller")

Report = Callable[[str, str, str | None, bool], None]
"""Called with a log, the uid of its owner, why the log does not exist (None: it exists), and whether the log
is still that of a predecessor.
"""


class _NotYetError(Exception):
    """The leader has not created the log yet."""

    def __str__(self) -> str:
        return "the log does not exist yet"


class LogKeeper:
    """Creates and deletes logs in tasks between `start` and `close`."""

    def __init__(
        self,
        logs: EventLog,
        store: ResourceStore,
        objects: Mapping[Key, Object],
        needs: Mapping[str, LogNeed],
        *,
        is_served: Callable[[str], bool],
        report: Report,
        took: Callable[[Key, Object | None], None],
        deletes: bool,
        leads: Callable[[], bool] = lambda: True,
        retry_s: float,
    ) -> None:
        """`is_served`: returns whether the data plane still serves a path. `took`: called with each stored
        object.

        `deletes`: delete logs with their owners. It must be False with several replicas: a slow replica could
        delete the log of a successor. `leads`: returns whether this worker creates and deletes logs; the
        others wait for them.
        """
        self._logs: Final = logs
        self._store: Final = store
        self._objects: Final = objects
        self._needs: Final = needs
        self._is_served: Final = is_served
        self._report: Final = report
        self._took: Final = took
        self._deletes: Final = deletes
        self._leads: Final = leads
        self._retry_s: Final = retry_s
        self._pauses: Final[dict[str, float]] = {}
        """The last pauses of logs that fail for a reason of their own, in seconds."""
        self._problems: Final[dict[str, str]] = {}
        """Why other logs do not exist."""
        self._again: Final[dict[str, asyncio.TimerHandle]] = {}
        self._waiting: Final[dict[str, None]] = {}
        self._in_hand: Final[set[str]] = set()
        # Counts requests and not logs. The tasks take any log that no other task works on.
        self._work: Final = asyncio.Semaphore(0)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks."""
        self._tasks = [supervisor.keep("controller.logs", self._run) for _ in range(AT_ONCE)]

    async def close(self) -> None:
        """Stop the tasks."""
        for timer in self._again.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_idle(self) -> bool:
        """Whether no work is left, except retries."""
        return not self._waiting and not self._in_hand

    @property
    def problem(self) -> str | None:
        """The first log that does not exist, with the reason; None if all logs exist.

        A log whose creation fails for a reason of its own does not count: the node refuses it, or an internal
        error occurs.
        """
        found = ((name, words) for name, words in self._problems.items() if name in self._needs)
        return next((words if name in words else f"{name}: {words}" for name, words in found), None)

    def tend(self, name: str) -> None:
        """Create or delete this log, if necessary. Returns at once."""
        # Requests for one log are merged: the task reads the need when it begins, so one run is enough.
        if name not in self._waiting:
            self._waiting[name] = None
            self._work.release()

    async def _run(self) -> None:
        while True:
            await self._work.acquire()
            name = next((each for each in self._waiting if each not in self._in_hand), None)
            if name is None:
                continue  # the task that works on this log takes the request when it has finished
            del self._waiting[name]
            self._in_hand.add(name)
            try:
                await self._tend(name)
            finally:
                self._in_hand.discard(name)
                if name in self._waiting:
                    self._work.release()

    async def _tend(self, name: str) -> None:
        need = self._needs.get(name)
        try:
            if self._deletes and not self._leads():
                await self._follow(name, need)
            elif self._deletes and not await self._own(name, need):
                return
            elif need is not None:
                await self._logs.ensure(name, partitions=need.partitions, retention_ms=need.retention_ms)
        except _NotYetError as error:
            self._later(name, min(AWAIT_S, self._retry_s))
            if need is not None:
                self._problems[name] = str(error)
                self._report(name, need.owner, str(error), self._is_of_predecessor(name, need))
            return
        except Exception as error:  # it affects only this log
            reason = str(error) or type(error).__name__
            if isinstance(error, GatewayError):
                log.warning("log_not_made" if need else "log_not_deleted", log=name, reason=reason)
            else:
                log.error("log_not_made" if need else "log_not_deleted", log=name, exc_info=error)
                reason = "internal error: see the gateway's log"
            self._later(name, self._pause_s(name, error, reason))
            if need is not None:
                self._report(name, need.owner, reason, self._is_of_predecessor(name, need))
            return
        self._pauses.pop(name, None)
        self._problems.pop(name, None)
        if need is not None:
            self._report(name, need.owner, None, False)

    def _is_of_predecessor(self, name: str, need: LogNeed) -> bool:
        owner = text(self._objects.get(Key(GATEWAY, LOG, "", name)), "spec", "owner")
        return self._deletes and owner not in {"", need.owner}

    def _pause_s(self, name: str, error: Exception, reason: str) -> float:
        """Return the pause before the next attempt. It grows if the same attempt would fail again."""
        if isinstance(error, GatewayError) and not isinstance(error, RefusedError):
            self._pauses.pop(name, None)
            self._problems[name] = reason
            return self._retry_s
        self._problems.pop(name, None)
        pause_s = self._pauses[name] = min(2 * self._pauses.get(name, self._retry_s / 2), PAUSE_S_MAX)
        return pause_s

    def _later(self, name: str, pause_s: float) -> None:
        # One timer for each log: other reasons to look at a log must not make its attempts more frequent.
        if (timer := self._again.pop(name, None)) is not None:
            timer.cancel()
        self._again[name] = asyncio.get_running_loop().call_later(pause_s, self._due, name)

    def _due(self, name: str) -> None:
        del self._again[name]
        self.tend(name)

    async def _follow(self, name: str, need: LogNeed | None) -> None:
        """Check that the leader has created the log.

        Raises:
            _NotYetError: the log does not exist yet, or is still that of a predecessor.
        """
        if need is None:
            return
        # The leader stores the owner when it has deleted the log of a predecessor, before it creates the log.
        # A follower that created the log itself could create it again after its deletion.
        if text(self._objects.get(Key(GATEWAY, LOG, "", name)), "spec", "owner") != need.owner:
            raise _NotYetError
        try:
            await self._logs.ends(name)
        except UnavailableError as error:
            raise _NotYetError from error

    async def _own(self, name: str, need: LogNeed | None) -> bool:
        """Delete the log of a predecessor, and store the new owner.

        Returns False if the data plane still serves the predecessor.
        """
        key = Key(GATEWAY, LOG, "", name)
        kept = self._objects.get(key)
        owner = text(kept, "spec", "owner")
        if owner and (need is None or need.owner != owner) and not self._is_there(name, owner):
            # Deleting the log under its subscribers would end their deliveries. The data plane reports when
            # it has released the path, and the log is looked at again.
            if self._is_served(path_of(name)):
                return False
            # First the log, then the record of its owner: after a crash between them, the log is deleted
            # again.
            await self._logs.delete(name)
            log.info("log_deleted", log=name)
            if need is None:
                await self._store.write(key, None, expected_version=version_of(kept))
                self._took(key, None)
                return True
        if need is not None and owner != need.owner:
            made = {
                "apiVersion": f"{GATEWAY}/v1",
                "kind": LOG,
                "metadata": {"name": name},
                "spec": {"owner": need.owner},
            }
            # The owner is stored before the log is created: after a crash between them, the owner of the log
            # is known.
            self._took(key, await self._store.write(key, made, expected_version=version_of(kept)))
        return True

    def _is_there(self, name: str, owner: str) -> bool:
        return any(uid_of(self._objects.get(key, {})) == owner for key in keys_of(path_of(name)))
