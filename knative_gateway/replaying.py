"""[io] Replay and redrive of one subscriber, trials of its filters, and paths of events, for the API: calls
the dispatcher, and answers with Kubernetes statuses.
"""

import asyncio
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, Protocol

from knative_gateway.dispatcher.history import HISTORY_MAX
from knative_gateway.dispatcher.subscribers.redriving import Progress
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.errors import UnavailableError
from knative_gateway.offsets import DIGITS, offset_text
from knative_gateway.paths.answering import Paths
from knative_gateway.ports import CursorStore, EventLog, Route, Start
from knative_gateway.resources import extensions
from knative_gateway.resources.objects import Object, moment_ms, uid_of
from knative_gateway.resources.refusals import StatusError, bad_request, check_options
from knative_gateway.trying import Trials

LAGS_S_MAX: Final = 2.0
"""How long the answer with the positions waits for the ends of the log."""
_BEGINNING_MS: Final = 0
_END_MS: Final = 1 << 45
"""A time after every stored event: more than a thousand years after 1970."""


class Dispatching(Protocol):
    """The dispatcher of this process. All methods raise KeyError if it does not serve the subscriber."""

    async def replay_from_time(self, uid: str, at_ms: int) -> None:
        """Move the subscriber to the first event that was stored at `at_ms` or later."""

    async def replay_from_offsets(self, uid: str, offsets: str) -> None:
        """Move the subscriber to PARTITION=OFFSET,….

        Raises:
            ValueError: the log does not have one of the partitions.
        """

    async def redrive(self, uid: str, only: Collection[tuple[int, str]] | None = None) -> int:
        """Deliver dead-lettered and dropped events again, all or `only` these. Returns their number."""

    async def lags(self, uid: str, stored: Mapping[int, str]) -> Mapping[int, int]:
        """Return how many events of each partition the subscriber will still get."""

    def redrives(self, uid: str) -> Progress:
        """Return how far the redrive of the subscriber is that this process carries out."""

    def cancel_redrive(self, uid: str) -> int:
        """Cancel the events of a redrive whose delivery has not begun. Returns their number."""

    def log_of(self, uid: str) -> str:
        """Return the log that the subscriber reads."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """All routes, by path."""

    def worker_at(self, path: str) -> RouteWorker | None:
        """Return the worker of the route at a path; None if it is not served."""


class DispatcherReplays:
    """See `api.actions.Replays`."""

    def __init__(self, dispatcher: Dispatching, events: EventLog, cursors: CursorStore) -> None:
        self._dispatcher: Final = dispatcher
        self._process: Final = secrets.token_hex(8)
        self._trials: Final = Trials(events)
        paths = Paths(dispatcher, events, cursors, self._trials)
        self.events: Final = paths.events
        """See `api.actions.Replays`."""
        self.trace: Final = paths.trace
        """See `api.actions.Replays`."""

    async def replay(self, subscriber: Object, start: str) -> Mapping[str, object]:
        """Deliver again from `start`, which the caller has validated.

        Raises:
            StatusError: the subscriber is not served, or the log does not have a partition.
            UnavailableError: the log or the store is not available.
        """
        found, _ = extensions.of_subscriber({"metadata": {"annotations": {extensions.START: start}}})
        uid = uid_of(subscriber)
        try:
            if found.start is Start.OFFSET:
                await self._dispatcher.replay_from_offsets(uid, found.start_at or "")
            else:
                moments = {Start.EARLIEST: _BEGINNING_MS, Start.NEW: _END_MS}
                at_ms = moments[found.start] if found.start in moments else moment_ms(found.start_at or "")
                assert at_ms is not None, "the caller has validated it"
                await self._dispatcher.replay_from_time(uid, at_ms)
        except KeyError:
            raise _not_served() from None
        except ValueError as error:
            raise bad_request(str(error)) from error
        return {"kind": "Replay", "uid": uid, "start": start}

    async def redrive(self, subscriber: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Deliver dead-lettered and dropped events again.

        Raises:
            StatusError: the subscriber is not served, or an option is not valid.
            UnavailableError: the log or the store is not available.
        """
        uid = uid_of(subscriber)
        cancels = _cancels(options)
        only = None if cancels else _only(options)
        try:
            if cancels:
                cancelled = self._dispatcher.cancel_redrive(uid)
                return {"kind": "Redrive", "uid": uid, "cancelled": cancelled, "process": self._process}
            events = await self._dispatcher.redrive(uid, only)
            return {"kind": "Redrive", "uid": uid, "events": events, "process": self._process}
        except KeyError:
            raise _not_served() from None

    def redrives(self, subscriber: Object) -> Mapping[str, object]:
        """See `api.actions.Replays`."""
        with suppress(KeyError):
            return {**self._dispatcher.redrives(uid_of(subscriber))._asdict(), "process": self._process}
        return {}

    async def lags(self, subscriber: Object, stored: Mapping[int, str]) -> Mapping[int, int]:
        """Return how many events of each partition the subscriber will still get; empty: not known now."""
        with suppress(KeyError, UnavailableError, TimeoutError):
            async with asyncio.timeout(LAGS_S_MAX):
                return await self._dispatcher.lags(uid_of(subscriber), stored)
        return {}

    async def match(self, trigger: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Return which of the latest events the filters match.

        Raises:
            StatusError: the Trigger is not served, an option is not valid, or too many trials wait.
            UnavailableError: the log is not available.
        """
        try:
            log = self._dispatcher.log_of(uid_of(trigger))
        except KeyError:
            raise _not_served() from None
        return await self._trials.match(log, trigger, options)


def _cancels(options: Mapping[str, object]) -> bool:
    """Return whether a request cancels a redrive."""
    if "cancel" not in options:
        return False
    if options.keys() != {"cancel"} or options["cancel"] is not True:
        message = 'cancel must be true, without other options: {"cancel": true}'
        raise bad_request(message)
    return True


def _only(options: Mapping[str, object]) -> Collection[tuple[int, str]] | None:
    """Return partition and offset of the events that a request names; None: all."""
    check_options("redrive", options, {"events"})
    if "events" not in options:
        return None
    events = options["events"]
    if (
        not isinstance(events, list)
        or not 0 < len(events) <= HISTORY_MAX
        or not all(map(_is_position, events))
    ):
        message = (
            f"events must be a list of 1 to {HISTORY_MAX} events of the history, such as"
            ' {"partition": 0, "offset": 42}'
        )
        raise bad_request(message)
    return {(event["partition"], offset_text(event["offset"])) for event in events}


def _is_position(event: object) -> bool:
    if not isinstance(event, Mapping) or event.keys() != {"partition", "offset"}:
        return False
    return all(type(number) is int and 0 <= number < 10**DIGITS for number in event.values())


def _not_served() -> StatusError:
    return StatusError(
        503,
        "ServiceUnavailable",
        "this subscriber is not served now: see its conditions, and try again",
    )
