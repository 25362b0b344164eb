"""[io] What failed of subscribers' deliveries, until it is kept where it lasts.

Laws: of each subscriber the latest are held, so many at most; what could not be kept is held on to; those of many subscribers take few
transactions, and other writers get their turn between two of them.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from event_formats.amqp_binding import IDENTITY_MAX
from knative_gateway.delivery import Attempt, To
from knative_gateway.delivery.dead_letter import without_login
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Failure

HISTORY_MAX: Final = 100
RECORDED_AT_ONCE: Final = 500
"""Failures of one transaction: a few milliseconds of the event loop. The last subscriber in it may bring HISTORY_MAX more."""
_BODY_CHARACTERS_MAX: Final = 1024

Record = Callable[[Mapping[str, Sequence[Failure]]], Awaitable[None]]
"""Keeps the failures of subscribers, by their uids."""

log = structlog.get_logger(__name__)


class History:
    """Failures of one subscriber that are not kept yet."""

    def __init__(self) -> None:
        self._failures: deque[Failure] = deque(maxlen=HISTORY_MAX)

    def note(self, now_ms: int, arrival: Arrival, failure: Attempt, end: str = "") -> None:
        """An attempt failed. `end`: what became of the event, if this was the end of it."""
        attributes = arrival.attributes or {}
        where = "" if failure.destination == To.SUBSCRIBER else f"{failure.destination} {without_login(failure.url)}: "
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
                body=failure.body[: 4 * _BODY_CHARACTERS_MAX].decode("utf-8", "replace")[:_BODY_CHARACTERS_MAX],
                end=end,
            )
        )

    def skip(self, now_ms: int, arrival: Arrival, reason: str = "") -> None:
        """The event is passed over; without a reason because it is not a CloudEvent."""
        where = (arrival.partition, arrival.offset)
        reason = reason or f"not a CloudEvent: {arrival.problem}"
        self._failures.append(Failure(now_ms, *arrival.identity, *where, 0, None, reason, "", "skipped"))

    def remark(self, now_ms: int, partition: int, offset: str, reason: str, end: str) -> None:
        """An entry that is not about a single event."""
        self._failures.append(Failure(now_ms, "", "", partition, offset, 0, None, reason, "", end))

    def __bool__(self) -> bool:
        return bool(self._failures)

    def take(self) -> Sequence[Failure]:
        """What is held, to be kept; `give_back` it if that fails."""
        taken = list(self._failures)
        self._failures.clear()
        return taken

    def give_back(self, failures: Sequence[Failure]) -> None:
        """Hold them again, before those that came since; of too many the latest."""
        self._failures = deque([*failures, *self._failures], maxlen=HISTORY_MAX)


async def keep(histories: Iterable[tuple[str, History]], record: Record) -> None:
    """Have `record` keep what is held, by uid. What cannot be written for a fault of ours costs its subscriber only.

    Raises:
        GatewayError: as `record` raises it; what was not kept is held still.
    """
    part: dict[str, tuple[History, Sequence[Failure]]] = {}
    for uid, history in histories:
        if history:
            part[uid] = history, history.take()
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
        if isinstance(error, GatewayError) or len(part) > 1:
            for history, failures in part.values():
                history.give_back(failures)
        if isinstance(error, GatewayError):
            raise
        if len(part) == 1:
            log.exception("history_not_kept", subscriber=next(iter(part)))
        for uid, (history, _) in part.items() if len(part) > 1 else ():
            await _keep({uid: (history, history.take())}, record)
    except BaseException:
        for history, failures in part.values():
            history.give_back(failures)
        raise
