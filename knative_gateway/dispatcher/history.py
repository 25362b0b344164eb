"""[io] Failed deliveries of subscribers, in memory until they are stored.

Each history holds the latest failures of one subscriber, at most `HISTORY_MAX`. Failures that could not be
stored are held for the next attempt. The failures of many subscribers are stored in few transactions; other
writers can write between two of them.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from event_formats.amqp_binding.reading import IDENTITY_MAX
from knative_gateway.delivery import Attempt, To
from knative_gateway.delivery.dead_letter import without_login
from knative_gateway.delivery.recent import Recent
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Failure

HISTORY_MAX: Final = 100
"""Failures that one subscriber holds in memory."""
RECORDED_AT_ONCE: Final = 500
"""Failures in one transaction: a few milliseconds of the event loop. The last subscriber of a transaction may
add HISTORY_MAX more.
"""
_BODY_CHARACTERS_MAX: Final = 1024

Record = Callable[[Mapping[str, Sequence[Failure]]], Awaitable[None]]
"""Stores failures, by the uid of the subscriber."""

log = structlog.get_logger(__name__)


class History:
    """The failures of one subscriber that are not stored yet. `recent`: its latest successful deliveries,
    which are never stored.
    """

    def __init__(self) -> None:
        self.recent: Final = Recent()
        # The deque drops the oldest failure itself: a subscriber that fails every event must not fill memory
        # while the store is unavailable.
        self._failures: deque[Failure] = deque(maxlen=HISTORY_MAX)

    def note(self, now_ms: int, arrival: Arrival, failure: Attempt, end: str = "") -> None:
        """Record a failed attempt. `end`: how the delivery ended, if this was its last attempt."""
        attributes = arrival.attributes or {}
        where = (
            ""
            if failure.destination == To.SUBSCRIBER
            else f"{failure.destination} {without_login(failure.url)}: "
        )
        self._failures.append(
            Failure(
                now_ms,
                event_id=str(attributes.get("id", ""))[:IDENTITY_MAX],
                event_source=str(attributes.get("source", ""))[:IDENTITY_MAX],
                partition=arrival.partition,
                offset=arrival.offset,
                attempt=failure.number,
                code=failure.code,
                reason=where + failure.reason,
                # A character has at most four bytes, so the bytes are cut before they are decoded and the
                # characters after.
                body=failure.body[: 4 * _BODY_CHARACTERS_MAX].decode("utf-8", "replace")[
                    :_BODY_CHARACTERS_MAX
                ],
                end=end,
            )
        )

    def skip(self, now_ms: int, arrival: Arrival, reason: str = "") -> None:
        """Record a skipped event. An empty `reason` means: the stored message is not a CloudEvent."""
        where = (arrival.partition, arrival.offset)
        reason = reason or f"not a CloudEvent: {arrival.problem}"
        self._failures.append(Failure(now_ms, *arrival.identity, *where, 0, None, reason, "", "skipped"))

    def remark(self, now_ms: int, partition: int, offset: str, reason: str, end: str) -> None:
        """Record a fact that does not concern a single event."""
        self._failures.append(Failure(now_ms, "", "", partition, offset, 0, None, reason, "", end))

    def __bool__(self) -> bool:
        return bool(self._failures)

    @property
    def held(self) -> Sequence[Failure]:
        """The failures that are not stored yet, the latest first."""
        return list(self._failures)[::-1]

    def take(self) -> Sequence[Failure]:
        """Remove and return all failures in order to store them. Call `give_back` if storing fails."""
        # Removed before they are stored: failures that arrive in the meantime belong to the next call.
        taken = list(self._failures)
        self._failures.clear()
        return taken

    def give_back(self, failures: Sequence[Failure]) -> None:
        """Hold failures again, before newer ones.

        If there are more than HISTORY_MAX, the oldest are dropped.
        """
        self._failures = deque([*failures, *self._failures], maxlen=HISTORY_MAX)


async def keep(histories: Iterable[tuple[str, History]], record: Record) -> None:
    """Store the failures of all histories.

    An internal error with one subscriber loses only the failures of this subscriber.

    Raises:
        GatewayError: `record` raised it; failures that were not stored are held again.
    """
    part: dict[str, tuple[History, Sequence[Failure]]] = {}
    for uid, history in histories:
        if history:
            part[uid] = history, history.take()
        # Several transactions: cursors must be stored in between, because they are more urgent.
        if sum(len(failures) for _, failures in part.values()) >= RECORDED_AT_ONCE:
            await _keep(part, record)
            part = {}
    await _keep(part, record)


async def _keep(part: Mapping[str, tuple[History, Sequence[Failure]]], record: Record) -> None:
    if not part:
        return
    try:
        await record({uid: failures for uid, (_, failures) in part.items()})
    except Exception as error:
        # The store is not available: hold the failures, and raise. Any other error may be caused by the data
        # of one subscriber: store each subscriber alone, and drop the failures of the one that fails alone.
        if isinstance(error, GatewayError) or len(part) > 1:
            for history, failures in part.values():
                history.give_back(failures)
        if isinstance(error, GatewayError):
            raise
        if len(part) == 1:
            log.exception("histories_not_stored", subscriber=next(iter(part)))
        for uid, (history, _) in part.items() if len(part) > 1 else ():
            await _keep({uid: (history, history.take())}, record)
    except BaseException:
        for history, failures in part.values():
            history.give_back(failures)
        raise
