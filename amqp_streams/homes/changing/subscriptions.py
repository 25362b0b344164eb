"""Subscriptions whose cursors have homes, and that their clients end. Pure.

Law: a subscription that a client was granted at any node before is found at each node.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.changing.changes import Changes, Here, OutcomeSteps
from amqp_streams.homes.messages import Outcome
from amqp_streams.node.lookups import Answering
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import management
from amqp_streams.streams.attach import AttachRequest
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, decoded, link_key

_ENDED: Final = frozenset({management.NO_CONTENT, management.NOT_FOUND})


class HomedSubscriptions:
    """See `Elsewhere`. `refreshed`: lets this node read all that homes have written.

    `soon`: carries the effects of the node out, after the caller has reported them.
    """

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        here: Here,
        changes: Changes,
        refreshed: Callable[[], Answering[None]],
        soon: Callable[[], object],
    ) -> None:
        self._logs: Final = logs
        self._here: Final = here
        self._changes: Final = changes
        self._refreshed: Final = refreshed
        self._soon: Final = soon

    def find(self, request: AttachRequest) -> Sequence[tuple[StoredLog, Cursor]]:
        """See `Elsewhere.find`."""
        buckets = [self._here.states(bucket) for bucket in range(BUCKETS)]
        own, found = link_key("", request.container, request.link).id, list[tuple[StoredLog, Cursor]]()
        for log in self._logs.values():
            state = f"{PREFIX}{log.incarnation}/{own}"
            value = next((states[state] for states in buckets if state in states), None)
            cursor = None if value is None else decoded(state, value)
            if cursor is not None and cursor.user == request.user:
                found.append((log, cursor))
        return found

    def looking_up(self, request: AttachRequest) -> Answering[None]:
        """See `Elsewhere.looking_up`."""
        if not self.find(request):
            yield from self._refreshed()

    def ending(self, request: AttachRequest) -> Answering[PeerError | None]:
        """See `Elsewhere.ending`."""
        for log, cursor in self.find(request):
            result = yield from _waits(self._changes.end(log, cursor, request.user))
            self._soon()
            if result.status not in _ENDED:
                words = f"the subscription may not have ended: {result.description}"
                return PeerError(names.LINK_DETACH_FORCED, words)
        return None


def _waits(steps: OutcomeSteps) -> Answering[Outcome]:
    """The same without the pauses: the steps are few."""
    try:
        while True:
            wait = next(steps)
            if wait is not None:
                yield wait
    except StopIteration as ended:
        result: Outcome = ended.value
        return result
    finally:
        steps.close()
