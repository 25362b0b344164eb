"""[io] The path of one event: which subscribers get it, why the others do not, and how far it is.

Laws: an answer has at most `SUBSCRIBERS_MAX` subscribers, those that get the event first. The filters of
those that do not get it are compiled and evaluated with the code that selects events for subscribers, in
about `STEPS_MAX` steps, and a compiled character counts as `CHARACTER_STEPS`.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

from event_formats.event import Value
from knative_gateway.delivery import dead_letter
from knative_gateway.delivery.recent import Reply
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.standing import Kept, Standing, State, ahead, standing
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.filters import FilterError, FilterWorkError
from knative_gateway.filters.dialects import Filters
from knative_gateway.filters.index import text_of
from knative_gateway.filters.trying import Trial, Verdict
from knative_gateway.offsets import offset_number
from knative_gateway.paths import stored
from knative_gateway.paths.asked import Traced
from knative_gateway.paths.locating import Search, Sought, name_of_route
from knative_gateway.ports import CursorStore, EventLog, Route, StoredCursor, Subscriber
from knative_gateway.security.inward import looks_inward
from knative_gateway.trying import STEPS_MAX, in_thread

ATTEMPTS_MAX: Final = 20
"""Recorded attempts of one event at one subscriber in an answer, the latest first."""
ORIGINS_MAX: Final = 5
"""Brokers and Channels in an answer that a dead letter may come from."""
CHARACTER_STEPS: Final = 64
"""Steps that a character of filters counts as when it is compiled."""


class Serving(Protocol):
    """The dispatcher of this process."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """All routes, by path."""

    def worker_at(self, path: str) -> RouteWorker | None:
        """Return the worker of the route at a path; None if it is not served."""


class Followed:
    """Follows one event of a route."""

    def __init__(self, serving: Serving, events: EventLog, cursors: CursorStore, worker: RouteWorker) -> None:
        self._serving: Final = serving
        self._events: Final = events
        self._cursors: Final = cursors
        self._worker: Final = worker
        self._route: Final = worker.wanted

    async def answer(self, traced: Traced) -> Mapping[str, object]:
        """Return the path of an event.

        Raises:
            StatusError: the log does not have the event.
            UnavailableError: the log or the store is not available.
        """
        attributes: Mapping[str, Value] | None
        arrival: Arrival | None
        if traced.event is not None:
            arrival, attributes = None, traced.event.attributes
            shown: dict[str, object] = {"attributes": stored.attributes_of(attributes)}
        else:
            arrival = await (await stored.Log.opened(self._events, self._route.log)).one(
                traced.partition, traced.offset
            )
            event, attributes = arrival.event, arrival.attributes
            shown = {**stored.row(arrival), **stored.data_of(None if event is None else event.data)}
        wanting = None if attributes is None else self._wanting(attributes)
        subscribers = self._route.subscribers
        page = await in_thread(partial(_page, subscribers, wanting, traced))
        verdicts = await in_thread(partial(_verdicts, page, attributes, wanting or ()))
        rows = await self._rows(page, verdicts, arrival)
        return {
            "kind": "Trace",
            "event": shown,
            "subscribers": rows,
            "total": len(subscribers),
            "matching": None if wanting is None else len(wanting),
            "origins": [] if attributes is None else await in_thread(partial(self._origins, attributes)),
        }

    def _wanting(self, attributes: Mapping[str, Value]) -> Collection[str] | None:
        """Return the uids of the subscribers that get an event; None: not known, because a filter fails."""
        try:
            return set(self._worker.index.matching(attributes))
        except FilterWorkError:
            return None

    async def _rows(
        self, page: Sequence[Subscriber], verdicts: Sequence[Verdict | None], arrival: Arrival | None
    ) -> list[Mapping[str, object]]:
        rows: list[Mapping[str, object]] = []
        getting = [each for each, verdict in zip(page, verdicts, strict=True) if verdict and verdict.matches]
        kept = {} if arrival is None else await self._kept(getting, arrival)
        search = Search(self._serving.routes, self._events, self._route.namespace)
        for each, verdict in zip(page, verdicts, strict=True):
            # The event loop serves other requests between two subscribers.
            await asyncio.sleep(0)
            matches = None if verdict is None else verdict.matches
            reason = (
                "not evaluated: the filters before need too many steps" if verdict is None else verdict.reason
            )
            row: dict[str, object] = {"kind": each.kind, "namespace": each.namespace, "name": each.name}
            row["matches"] = matches
            if reason:
                row["reason"] = reason
            if arrival is not None and matches:
                row |= await self._state(each, kept[each.uid], arrival, search)
            rows.append(row)
        return rows

    async def _kept(self, page: Sequence[Subscriber], arrival: Arrival) -> dict[str, Kept]:
        uids, partition = [each.uid for each in page], arrival.partition
        cursors, done = await self._cursors.load(uids), await self._cursors.done(uids)
        return {
            uid: Kept(
                cursors.get(uid, StoredCursor()).positions.get(partition, ""),
                done.get((uid, partition), ()),
                await self._cursors.history(uid),
            )
            for uid in uids
        }

    async def _state(
        self, subscriber: Subscriber, kept: Kept, arrival: Arrival, search: Search
    ) -> dict[str, object]:
        partition, offset = arrival.partition, arrival.offset
        dispatcher = self._worker.dispatchers.get(subscriber.uid)
        found = standing(dispatcher, kept, partition, offset, arrival.identity[0])
        row: dict[str, object] = {
            "state": found.state.value,
            "position": offset_number(found.position),
            "here": found.is_ours,
            "attempts": [
                {**asdict(each), "offset": offset_number(each.offset)}
                for each in found.attempts[:ATTEMPTS_MAX]
            ],
        }
        if subscriber.paused:
            row["paused"] = True
        if found.state is State.NOT_REACHED:
            row["ahead"] = ahead(found.position, offset)
        if found.state is State.NOT_SERVED:
            row["reason"] = self._worker.failing.get(subscriber.uid, "it is being started")
        if found.delivered is not None:
            row["delivered"] = {"at_ms": found.delivered.at_ms, "took_ms": found.delivered.took_ms}
        if found.state is State.DEAD_LETTERED:
            row["dead_letter"] = await self._dead_letter(subscriber, arrival, found, search)
        if found.reply is not None:
            row["reply"] = await self._reply(subscriber, found.reply, search)
        return row

    async def _dead_letter(
        self, subscriber: Subscriber, arrival: Arrival, found: Standing, search: Search
    ) -> Mapping[str, object]:
        url = subscriber.delivery.dead_letter_url
        if url is None:
            return {"note": "the subscriber has no dead letter sink any more"}
        sent_to = dead_letter.as_string(dead_letter.without_login(_url_of(subscriber)))

        def is_it(each: Arrival) -> bool:
            return (each.attributes or {}).get(dead_letter.SUBSCRIBER_URI) == sent_to

        sought = Sought(*arrival.identity, found.attempts[0].at_ms, is_it)
        return {"sink": dead_letter.without_login(url), **await search.at_url(url, sought)}

    async def _reply(self, subscriber: Subscriber, reply: Reply, search: Search) -> Mapping[str, object]:
        named = {"id": reply.id, "source": reply.source, "at_ms": reply.at_ms}
        sought = Sought(reply.id, reply.source, reply.at_ms)
        if subscriber.reply_log is not None:
            return {**named, **await search.in_route(self._route, sought)}
        url = subscriber.reply_url or ""
        return {**named, "sent_to": dead_letter.without_login(url), **await search.at_url(url, sought)}

    def _origins(self, attributes: Mapping[str, Value]) -> list[Mapping[str, object]]:
        """Return the Brokers and Channels of the namespace whose subscribers send dead letters like this one
        here.
        """
        sent_to = attributes.get(dead_letter.SUBSCRIBER_URI)
        if not isinstance(sent_to, str):
            return []
        found: list[Mapping[str, object]] = []
        here = self._route
        for route in list(self._serving.routes.values()):
            ours = route.subscribers if route.namespace == here.namespace else ()
            if any(_sends(each, sent_to, here.path) for each in ours):
                found.append(name_of_route(route))
            if len(found) == ORIGINS_MAX:
                break
        return found


def _page(
    subscribers: Sequence[Subscriber], wanting: Collection[str] | None, traced: Traced
) -> Sequence[Subscriber]:
    # The controller gives them in the order of their names. Sorting ten thousand of them again would hold up
    # other threads.
    if wanting is not None:
        getting = [each for each in subscribers if each.uid in wanting]
        subscribers = [*getting, *(each for each in subscribers if each.uid not in wanting)]
    return subscribers[traced.skip : traced.skip + traced.limit]


def _verdicts(
    page: Sequence[Subscriber], attributes: Mapping[str, Value] | None, wanting: Collection[str]
) -> list[Verdict | None]:
    """Return the result of the filters of each subscriber; None: there were too many steps before.

    `wanting`: the subscribers that get the event, as the index knows.
    """
    if attributes is None:
        return [Verdict(False, "the stored message is not a CloudEvent")] * len(page)
    reasons = _Reasons(attributes)
    return [Verdict(True) if each.uid in wanting else reasons.of(each.filters) for each in page]


class _Reasons:
    """Why filters do not match an event. After too many steps, no further filters are compiled."""

    def __init__(self, attributes: Mapping[str, Value]) -> None:
        self._attributes: Final = attributes
        self._known: Final[dict[str, Verdict]] = {}
        """By the text of the filters: many Triggers often have equal ones."""
        self._spent = 0

    def of(self, filters: Filters) -> Verdict | None:
        if self._spent > STEPS_MAX:
            return None
        text = text_of(filters)
        if text in self._known:
            return self._known[text]
        is_first = not self._known
        self._spent += CHARACTER_STEPS * len(text)
        # Filters that alone need too many steps are tried when they are the first ones of a request.
        if self._spent > STEPS_MAX and not is_first:
            return None
        try:
            trial = Trial(filters)
        except FilterError as error:
            found = Verdict(False, f"its filters are not valid: {error}"[: stored.VALUE_MAX])
        else:
            found = trial.verdict(self._attributes)
            self._spent += trial.spent
        self._known[text] = found
        return found


def _sends(subscriber: Subscriber, sent_to: str, path: str) -> bool:
    """Return whether dead letters of a subscriber with this URL go to the route at `path`."""
    sink = subscriber.delivery.dead_letter_url
    if sink is None or not looks_inward(sink) or urlsplit(sink).path.removesuffix("/") != path:
        return False
    return dead_letter.as_string(dead_letter.without_login(_url_of(subscriber))) == sent_to


def _url_of(subscriber: Subscriber) -> str:
    return subscriber.subscriber_url or subscriber.reply_url or ""
