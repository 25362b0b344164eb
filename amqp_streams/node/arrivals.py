"""Attaches that wait for the store before the node decides: another node may have created the log.

Laws: a client without the right to attach causes no question to the store. The node decides with the rights
and the logs of the moment in which the store has answered.
"""

from collections.abc import Callable, Generator
from functools import partial

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.log_settings import LOG_NAME
from amqp_streams.node.logs import Logs
from amqp_streams.node.lookups import Answering, Lookups, asked, refreshed
from amqp_streams.node.reading import storage_refusal
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import Store, StoredLog
from amqp_streams.storage.questions import Find
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import AttachRequest, Decided, Denied, Effect, Grant, Pending, addressed_log

Decide = Callable[[AttachRequest, int], Grant | Pending]
LookingUp = Callable[[AttachRequest], Answering[None]]
Opening = Callable[[AttachRequest, StoredLog], Answering[None]]


class Arrivals:
    """The attaches that wait for the store. `decide`: what the node does when the store has answered.

    `looking_up`: what a receiver without a source waits for. `opening`: opens the producer of an attach.
    """

    def __init__(  # noqa: PLR0917  what it uses of the node
        self,
        store: Store,
        logs: Logs,
        lookups: Lookups,
        decide: Decide,
        report: Callable[[Effect], None],
        looking_up: LookingUp,
        opening: Opening,
    ) -> None:
        self._store = store
        self._logs = logs
        self._lookups = lookups
        self._opening = opening
        self._decide = decide
        self._report = report
        self._looking_up = looking_up
        self._waiting: dict[Pending, Generator[Wait, None, None]] = {}

    def attach(self, request: AttachRequest, permissions: Permissions, now_ms: int) -> Grant | Pending:
        """Ask the store what the attach needs, then decide.

        Raises:
            PeerError, StorageError: as `Node.attach`.
        """
        name = addressed_log(request)
        if (name is None and not request.no_source) or self._lookups.on_answer is None:
            return self._decide(request, now_ms)
        steps = self._looking_up(request) if name is None else self._ask(request, name, permissions)
        wait = next(steps, None)
        if wait is None:
            return self._decide(request, now_ms)
        pending = Pending(request)
        self._waiting[pending] = steps
        self._await(pending, wait)
        return pending

    def forget(self, pending: Pending) -> bool:
        """The client has left. Returns whether the attach waited here."""
        self._lookups.forget(pending)
        steps = self._waiting.pop(pending, None)
        if steps is not None:
            steps.close()
        return steps is not None

    def _ask(
        self, request: AttachRequest, name: str, permissions: Permissions
    ) -> Generator[Wait, None, None]:
        log, connection = self._store.logs.get(name), request.connection
        if log is None:
            # Other addresses cannot be those of a log.
            if not LOG_NAME.fullmatch(name):
                return
            log = yield from asked(self._store, Find(name), connection)
        if log is None:
            log = yield from self._logs.arriving(name, permissions, connection)
        # The information link asks before each message.
        if log is not None and request.consumer and not request.wants_info:
            yield from refreshed(self._store, log, connection)
        if log is not None:
            yield from self._opening(request, log)

    def _await(self, pending: Pending, wait: Wait) -> None:
        wait.then(partial(self._lookups.ready, pending, partial(self._continue, pending)))

    def _continue(self, pending: Pending, now_ms: int) -> None:
        steps = self._waiting.get(pending)
        if steps is None:  # the client has left, and the creation of its log has ended nevertheless
            return
        try:
            wait = next(steps, None)
            if wait is not None:
                self._await(pending, wait)
                return
            del self._waiting[pending]
            outcome = self._decide(pending.request, now_ms)
        except PeerError as error:
            self._deny(pending, error)
        except StorageError as error:
            self._deny(pending, storage_refusal(error))
        else:
            self._report(Decided(pending, outcome))

    def _deny(self, pending: Pending, error: PeerError) -> None:
        self._waiting.pop(pending, None)
        self._report(Denied(pending, error))
