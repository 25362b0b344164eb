"""Deliveries to durable consumers that settle second.

The node settles them when the cursor that covers them is on the disk. Spec: AMQP 2.6.12, 2.8.3.

Law: a receiver that sees its delivery settled may rely on the node having stored its outcome. A delivery's
pointer is invalid after it is settled or its link has ended, so the code that settles a delivery first
removes it from here.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.proton.pointers import Pointer

Written: TypeAlias = Callable[[StorageError | None, int], None]


class Confirmed(Hashable, Protocol):
    """A link whose receiver settles second."""

    def confirm(self, deliveries: Sequence[Pointer]) -> None:
        """What the receiver reported about these deliveries is on the disk: settle them."""


class Confirming:
    """The deliveries of all links that wait for a cursor to be written.

    `again`: requests another write after a failure.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._held: dict[Confirmed, dict[Pointer, int]] = {}
        self._turn = 0

    def hold(self, link: Confirmed, delivery: Pointer) -> None:
        """The node knows the outcome. Settle the delivery when the cursor is written."""
        self._held.setdefault(link, {})[delivery] = self._turn

    def let_go(self, link: Confirmed, delivery: Pointer) -> None:
        """Remove a delivery that the receiver settled itself."""
        self._held.get(link, {}).pop(delivery, None)

    def forget(self, link: Confirmed) -> None:
        """Remove all deliveries of a link that has ended."""
        self._held.pop(link, None)

    def next_write(self) -> Written | None:
        """Start a write of cursors. Returns the function to call after it, or None if no delivery waits."""
        if not self._held:
            return None
        self._turn += 1
        return partial(self._written, self._turn)

    def next_write_of(self, link: Confirmed) -> Callable[[], None] | None:
        """The same for one link, whose cursor is written alone: the function to call when it is durable."""
        if link not in self._held:
            return None
        self._turn += 1
        return partial(self._settle, link, self._turn)

    def _written(self, turn: int, failure: StorageError | None, _now_ms: int) -> None:
        if failure is not None:
            self._again()
            return
        # A copy: `confirm` may end a link, which changes the dictionary.
        for link in list(self._held):
            self._settle(link, turn)

    def _settle(self, link: Confirmed, turn: int) -> None:
        held = self._held.get(link)
        if held is None:
            return
        # Only deliveries from before this write: later ones are covered by the next.
        due = [delivery for delivery, since in held.items() if since < turn]
        for delivery in due:
            del held[delivery]
        if not held:
            del self._held[link]
        if due:
            link.confirm(due)
