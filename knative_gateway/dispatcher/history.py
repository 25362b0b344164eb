"""What failed of one subscriber's deliveries, until it is kept where it lasts. Pure.

Law: the latest are held, so many at most; what could not be kept is held on to.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from knative_gateway.amqp_binding import IDENTITY_MAX
from knative_gateway.delivery import Attempt, To
from knative_gateway.delivery.dead_letter import without_login
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.ports import Failure

HISTORY_MAX: Final = 100
_BODY_CHARACTERS_MAX: Final = 1024


class History:
    """Failures that are not kept yet."""

    def __init__(self) -> None:
        self._failures: Final[deque[Failure]] = deque(maxlen=HISTORY_MAX)

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
        reason = reason or f"no CloudEvent: {arrival.problem}"
        self._failures.append(Failure(now_ms, *arrival.identity, *where, 0, None, reason, "", "skipped"))

    def remark(self, now_ms: int, partition: int, offset: str, reason: str, end: str) -> None:
        """Something that is about no single event."""
        self._failures.append(Failure(now_ms, "", "", partition, offset, 0, None, reason, "", end))

    def __bool__(self) -> bool:
        return bool(self._failures)

    async def keep(self, record: Callable[[Sequence[Failure]], Awaitable[None]]) -> None:
        """Hand over what is held; raises what `record` raises, and holds it still."""
        if not self._failures:
            return
        failures = list(self._failures)
        self._failures.clear()
        try:
            await record(failures)
        except BaseException:
            self._failures.extendleft(reversed(failures))
            raise
