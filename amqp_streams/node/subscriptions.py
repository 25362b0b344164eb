"""Receivers without a source: a client asks what is kept under a link's name, or ends the subscription.

Spec: AMQP 2.6.3.

Law: an answer that says that a cursor does not exist is sent after its deletion is on the disk.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.lookups import Answering, carried_out
from amqp_streams.node.reading import storage_refusal
from amqp_streams.node.writes import Writes
from amqp_streams.policy import Right
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import AttachRequest, Denied, Effect, Ended, Kept, Pending
from amqp_streams.streams.consuming.cursors import Cursor


class Elsewhere(Protocol):
    """The cursors of links, if homes decide about them."""

    def find(self, request: AttachRequest) -> Sequence[tuple[StoredLog, Cursor]]:
        """The cursors of this user under a link's name, as far as this node knows."""

    def looking_up(self, request: AttachRequest) -> Answering[None]:
        """Let this node know all cursors that were granted before, unless it knows one.

        Raises:
            StorageError: it cannot learn that now.
        """

    def ending(self, request: AttachRequest) -> Answering[PeerError | None]:
        """Let homes remove these cursors. Returns why that failed, perhaps."""


class Subscriptions:
    """Answers receivers without a source. `report` is called with each effect."""

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        cursors: KeptCursors,
        writes: Writes,
        report: Callable[[Effect], None],
    ) -> None:
        self._logs = logs
        self._cursors = cursors
        self._writes = writes
        self._report = report
        self.elsewhere: Elsewhere | None = None
        """None: the cursors are here."""

    def looking_up(self, request: AttachRequest) -> Answering[None]:
        """What an attach waits for before it is decided. Raises StorageError."""
        if self.elsewhere is not None:
            yield from self.elsewhere.looking_up(request)

    def attach(self, request: AttachRequest, permissions: Permissions) -> Kept | Pending:
        """The source that is kept under the link's name.

        `Pending`: no cursor exists, and the attach is refused when this is on the disk.

        Raises:
            PeerError: no cursor exists, or the user must not read its log.
        """
        kept = self._kept(request)
        if kept:
            permissions.require(Right.RECEIVE, kept[0][0].name)
            return Kept(request, kept[0][0].name)
        missing = PeerError(
            names.NOT_FOUND,
            f"no source is kept for link {request.link[:64]!r} of container {request.container[:64]!r}",
        )
        # A deletion that was not answered may still be in flight, or may have failed.
        wait = self._writes.settled()
        if wait.over:
            raise missing
        pending = Pending(request)

        def written() -> None:
            error = missing if wait.failure is None else storage_refusal(wait.failure)
            self._report(Denied(pending, error))

        wait.then(written)
        return pending

    def end(self, link: Kept) -> None:
        """Remove the cursors of a link that its client has closed. `Ended` follows."""
        if self.elsewhere is not None:
            # It is continued by what it waits for.
            next(carried_out(self._ending(link, self.elsewhere), lambda: None), None)
            return
        kept = self._kept(link.request)
        self._cursors.remove([cursor for _, cursor in kept])
        wait = self._writes.settled()

        def written() -> None:
            error = None if wait.failure is None else storage_refusal(wait.failure)
            self._report(Ended(link, error))

        wait.then(written)

    def _kept(self, request: AttachRequest) -> Sequence[tuple[StoredLog, Cursor]]:
        if self.elsewhere is not None:
            return self.elsewhere.find(request)
        return self._cursors.of_link(request, self._logs.values())

    def _ending(self, link: Kept, elsewhere: Elsewhere) -> Answering[None]:
        error = yield from elsewhere.ending(link.request)
        self._report(Ended(link, error))
