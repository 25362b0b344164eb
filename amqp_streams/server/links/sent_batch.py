"""A batch that a producer sent: one delivery whose events wait for one or two commits.

Law: the delivery gets one outcome, when all its events are durable or have failed.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import Owner
from amqp_streams.storage.ports import CommitDone
from amqp_streams.streams.receipts import Part


class Answering(Protocol):
    """The link of the batch."""

    name: str
    owner: Owner

    def answer(self, delivery: Pointer, refused: PeerError | StorageError | None) -> None:
        """Send the outcome of a delivery. `refused`: the error; None: accepted."""

    def top_up(self) -> None:
        """Grant credit, if there is space."""


class SentBatch:
    """Waits for `commits` commits (`link.Committing`).

    `refused`: the error of the outcome, if it is known already.
    """

    __slots__ = ("_commits", "_delivery", "_link", "_refused", "name", "owner")

    def __init__(
        self, link: Answering, delivery: Pointer, commits: int, refused: PeerError | StorageError | None
    ) -> None:
        self.name = link.name
        self.owner = link.owner
        self._link: Final = link
        self._delivery: Final = delivery
        self._commits = commits
        self._refused = refused

    def committed(self, deliveries: Sequence[Pointer], parts: Sequence[Part], done: CommitDone) -> None:  # noqa: ARG002  the delivery is known
        """One of the commits has ended."""
        self._commits -= 1
        for part in parts:
            self._refused = self._refused or done.failures.get(part.partition)
        if not self._commits:
            self._link.answer(self._delivery, self._refused)

    def top_up(self) -> None:
        """Grant credit to the link, if there is space."""
        self._link.top_up()
