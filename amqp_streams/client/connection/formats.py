"""The message-formats of received messages, which Proton does not report (AMQP 1.0 core 2.7.5)."""

from collections.abc import Sequence
from typing import Final

from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.receiving import tag_of
from amqp_streams.wire.formats import FormatFinder


class LinkFormats:
    """The message-formats of the messages of one link.

    Create it while the bytes that `finder` examines contain the peer's attach.
    """

    __slots__ = ("_endpoint", "_finder")

    def __init__(self, finder: FormatFinder, name: str) -> None:
        self._finder: Final = finder
        self._endpoint: Final = finder.find_link(name)

    def pop(self, deliveries: Sequence[Pointer]) -> Sequence[int]:
        """Return the message-formats of unsettled deliveries; empty if all are 0.

        Ask once for each delivery.
        """
        if not self._finder.waiting:
            return ()
        return self._finder.pop(self._endpoint, list(map(tag_of, deliveries)))

    def forget(self) -> None:
        """Free the data: the link has ended."""
        self._finder.forget(self._endpoint)
