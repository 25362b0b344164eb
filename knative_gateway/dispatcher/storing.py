"""[io] Storing of cursors and histories.

A position is stored only if all events up to it are completed. Positions that could not be stored are stored
by a later flush.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from knative_gateway.dispatcher import history
from knative_gateway.dispatcher.cursor import Cursor
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.errors import GatewayError
from knative_gateway.ports import CursorStore, Range

log: Final = structlog.get_logger(__name__)


async def flush(cursors: Iterable[Cursor], moved: set[Cursor], store: CursorStore, *, ranges: bool) -> bool:
    """Store the cursors that changed since they were stored. Returns whether any did. `ranges`: also store
    completed ranges above the positions.

    `moved` is emptied. Cursors whose position could not be stored are put back.

    Raises:
        GatewayError: the store is not available.
    """
    reached: dict[Cursor, str] = {}
    done: dict[Cursor, Sequence[Range]] = {}
    considered = list(cursors)
    # Cleared before the first await: a cursor that moves while the store works is added again, and is stored
    # by the next flush.
    moved.clear()
    for cursor in considered:
        if (position := cursor.position()) != cursor.saved:
            reached[cursor] = position
        if ranges and (completed := cursor.done) != cursor.saved_done:
            done[cursor] = completed
    if not reached and not done:
        return False
    try:
        await store.save(
            {cursor.key: position for cursor, position in reached.items()},
            {cursor.key: completed for cursor, completed in done.items()},
            {cursor.key: cursor.incarnation for cursor in (*reached, *done)},
        )
    except BaseException:
        moved.update(reached)
        raise
    for cursor, position in reached.items():
        cursor.saved = position
    for cursor, completed in done.items():
        cursor.saved_done = completed
    return True


async def keep(
    dispatchers: Sequence[SubscriberDispatcher],
    store: CursorStore,
    cursors: Sequence[Cursor] | None = None,
) -> None:
    """Store cursors and histories before their dispatchers end. `cursors` None: all cursors of the
    dispatchers.

    Uses few transactions for any number of cursors. Errors are logged, not raised.
    """
    if cursors is None:
        cursors = [each.cursor for dispatcher in dispatchers for each in dispatcher.partitions.values()]
    reached: dict[tuple[str, int], str] = {}
    done: dict[tuple[str, int], Sequence[Range]] = {}
    for cursor in cursors:
        try:
            reached[cursor.key], done[cursor.key] = cursor.position(), cursor.done
        except Exception:
            # An internal error with one subscriber must not prevent the storing of other cursors.
            log.exception("cursors_not_stored", subscriber=cursor.key[0])
    try:
        await store.save(reached, done, {cursor.key: cursor.incarnation for cursor in cursors})
        histories = ((dispatcher.spec.uid, dispatcher.history) for dispatcher in dispatchers)
        await history.keep(histories, store.record)
    except GatewayError as error:
        log.warning("cursors_not_stored", subscribers=len(dispatchers), reason=str(error))
    except Exception:
        log.exception("cursors_not_stored", subscribers=len(dispatchers))
