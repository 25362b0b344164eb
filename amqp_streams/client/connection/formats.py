"""The message-formats of what a link brings, which the engine drops (AMQP 2.7.5)."""

from collections.abc import Sequence
from typing import Final

from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.receiving import tag_of
from amqp_streams.wire.formats import FormatFinder


class LinkFormats:
    """The message-formats of what a link brings.

    Made while its peer's attach is in the block that `finder` looks at.
    """

    __slots__ = ("_endpoint", "_finder")

    def __init__(self, finder: FormatFinder, name: str) -> None:
        self._finder: Final = finder
        self._endpoint: Final = finder.find_link(name)

    def pop(self, deliveries: Sequence[Pointer]) -> Sequence[int]:
        """Those of deliveries that are not settled, asked once for each; empty: they are all 0."""
        if not self._finder.waiting:
            return ()
        return self._finder.pop(self._endpoint, list(map(tag_of, deliveries)))

    def forget(self) -> None:
        """The link is gone."""
        self._finder.forget(self._endpoint)
