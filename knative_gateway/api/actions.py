"""Actions on a Trigger or Subscription beyond Kubernetes: delivery history, pause, resume, replay, redrive.
[io]

  GET  …/NAME/deliveries    the latest failures, and the positions
  POST …/NAME/pause         sets the annotation knative-gateway/paused
  POST …/NAME/resume        removes it
  POST …/NAME/replay        {"start": "earliest"}, "time=2026-01-31T12:00:00Z" or "offset=PARTITION=OFFSET,…":
                            delivers again from there
  POST …/NAME/redrive       delivers again the events that went to the dead letter sink or were dropped; with
                            {"events": [{"partition": 0, "offset": 42}]} only these; with {"cancel": true}
                            none of those whose delivery has not begun
  POST …/NAME/events        of a Broker or Channel: {"events": 20}: its latest events, or with "id" those that
                            have this id
  POST …/NAME/trace         of a Broker or Channel: {"partition": 0, "offset": 42}: who gets this event, why
                            the others do not, and how far it is
  POST …/NAME/match         of a Trigger: {"filters": […], "events": 20}: which of the latest events the
                            filters match, and why not; without filters, those of the Trigger
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, Protocol

from knative_gateway.api.objects import Objects
from knative_gateway.offsets import offset_number
from knative_gateway.ports import CursorStore
from knative_gateway.resources import admission, extensions
from knative_gateway.resources.kinds import EVENTING, MESSAGING, Kind
from knative_gateway.resources.objects import Object, uid_of
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import StatusError, bad_request

GROUP_VERSION: Final = "gateway.knative.dev/v1"
DELIVERIES: Final = "deliveries"
PAUSE: Final = "pause"
RESUME: Final = "resume"
REPLAY: Final = "replay"
REDRIVE: Final = "redrive"
MATCH: Final = "match"
EVENTS: Final = "events"
TRACE: Final = "trace"
OF_SUBSCRIBERS: Final = (PAUSE, RESUME, REPLAY, REDRIVE, MATCH)
OF_SOURCES: Final = (EVENTS, TRACE)
CHANGES: Final = (PAUSE, RESUME, REPLAY, REDRIVE)
"""The actions after which more or less is delivered than before."""
POSTED: Final = (*OF_SUBSCRIBERS, *OF_SOURCES)
_SOURCES: Final = frozenset({(EVENTING, "Broker"), (MESSAGING, "Channel"), (MESSAGING, "InMemoryChannel")})


class Replays(Protocol):
    """The part of the data plane that delivers events again, tries filters, and follows events."""

    async def replay(self, subscriber: Object, start: str) -> Mapping[str, object]:
        """Deliver again from `start`, in the form of the annotation knative-gateway/start. Return the body of
        the answer.

        Raises:
          StatusError: the request is refused.
        """

    async def redrive(self, subscriber: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Deliver dead-lettered and dropped events again. Return the body of the answer.

        Raises:
          StatusError: the request is refused.
        """

    def redrives(self, subscriber: Object) -> Mapping[str, object]:
        """Return how far the redrive is that this process carries out: `events`, `left`, `cancelled`,
        `process`; empty if the subscriber is not served here.
        """

    async def lags(self, subscriber: Object, stored: Mapping[int, str]) -> Mapping[int, int]:
        """Return how many events of each partition the subscriber will still get; empty: not known now."""

    async def match(self, trigger: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Try filters with stored events. Return the body of the answer.

        Raises:
          StatusError: the request is refused.
        """

    async def events(self, source: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Read stored events of a Broker or Channel. Return the body of the answer.

        Raises:
          StatusError: the request is refused.
        """

    async def trace(self, source: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Follow one event of a Broker or Channel. Return the body of the answer.

        Raises:
          StatusError: the request is refused.
        """


def applies(kind: Kind, subresource: str) -> bool:
    """Return whether objects of a kind have this subresource."""
    if (kind.group, kind.kind) in _SOURCES:
        return subresource in OF_SOURCES
    if (kind.group, kind.kind) == (EVENTING, "Trigger"):
        return subresource in {DELIVERIES, *OF_SUBSCRIBERS}
    # A Subscription has no filters.
    is_subscription = (kind.group, kind.kind) == (MESSAGING, "Subscription")
    return is_subscription and subresource in {DELIVERIES, *OF_SUBSCRIBERS} - {MATCH}


class Actions:
    """The handlers of these endpoints."""

    def __init__(self, objects: Objects, cursors: CursorStore, replays: Replays | None) -> None:
        self._objects: Final = objects
        self._cursors: Final = cursors
        self._replays: Final = replays

    async def deliveries(self, kind: Kind, namespace: str, name: str) -> dict[str, object]:
        """Return the history of a subscriber, the latest failure first, and its positions.

        Raises:
          StatusError: the subscriber does not exist (404).
        """
        subscriber = await self._objects.get(kind, namespace, name)
        uid = uid_of(subscriber)
        cursor, failures = (await self._cursors.load([uid])).get(uid), await self._cursors.history(uid)
        positions = {} if cursor is None else cursor.positions
        lags = {} if self._replays is None else await self._replays.lags(subscriber, positions)
        return {
            "kind": "Deliveries",
            "apiVersion": GROUP_VERSION,
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "positions": [
                {"partition": partition, "offset": offset_number(offset), "lag": lags.get(partition)}
                for partition, offset in sorted(positions.items())
            ],
            "redrive": {} if self._replays is None else self._replays.redrives(subscriber),
            "failures": [
                {**asdict(failure), "offset": offset_number(failure.offset)} for failure in failures
            ],
        }

    async def act(self, request: admission.Request, action: str, options: object) -> Mapping[str, object]:
        """Perform an action and return the body of the answer.

        Raises:
          StatusError: the request is refused.
        """
        if action in {PAUSE, RESUME}:
            change = {"metadata": {"annotations": {extensions.PAUSED: "true" if action == PAUSE else None}}}
            written = await self._objects.change(
                # The state of pausing is an annotation: it survives restarts, all replicas see it, and
                # kubectl can set it, too.
                request,
                lambda old: admission.patch(request, old, json_patches.MERGE, change),
                change,
            )
            return written.object
        if not isinstance(options, Mapping | None):
            raise bad_request("the body must be an object")
        subscriber = await self._objects.get(request.kind, request.namespace, request.name)
        start = _start(options) if action == REPLAY else ""
        # After the request was checked: a request with an error gets its error on each gateway.
        if self._replays is None:
            raise StatusError(501, "NotImplemented", f"{action} is not available on this gateway")
        if action == REDRIVE:
            return await self._replays.redrive(subscriber, options or {})
        if action in {MATCH, EVENTS, TRACE}:
            looks = {MATCH: self._replays.match, EVENTS: self._replays.events, TRACE: self._replays.trace}
            return await looks[action](subscriber, options or {})
        return await self._replays.replay(subscriber, start)


def _start(options: Mapping[str, object] | None) -> str:
    start = (options or {}).get("start")
    causes = extensions.of_subscriber({"metadata": {"annotations": {extensions.START: start}}})[1]
    if not isinstance(start, str) or causes:
        words = f": {causes[0].words}" if causes else ""
        raise bad_request(
            f'start must be given as {{"start": "earliest"}}, "time=…" or "offset=PARTITION=OFFSET,…"{words}'
        )
    return start
