"""The order in which consumer links are pumped. Pure.

Laws: a link that has few events left to read is pumped before links that read old events, so that what is new
does not wait for what is old. Among `NEW_IN_A_ROW` + 1 pumps at least one is for a link of the other kind, if
one waits. Links of one kind take turns.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Final

from amqp_streams.server.links.link import Pumped

NEW_IN_A_ROW: Final = 16
"""How many links with new events are pumped before one that reads old events. The latter takes longer."""


class Pumps:
    """The links that wait to be pumped, each once."""

    def __init__(self) -> None:
        self.new: Final[deque[Pumped]] = deque()
        """Links that have few events left to read."""
        self._old: Final[deque[Pumped]] = deque()
        self._in_a_row = 0

    def __len__(self) -> int:
        return len(self.new) + len(self._old)

    def __iter__(self) -> Iterator[Pumped]:
        return chain(self.new, self._old)

    def add(self, link: Pumped, *, new: bool) -> None:
        """Let a link wait, unless it waits already. `new`: it has few events left to read."""
        if not link.scheduled:
            link.scheduled = True
            (self.new if new else self._old).append(link)

    def take(self) -> Pumped:
        """Remove the link whose turn it is."""
        if self.new and (not self._old or self._in_a_row < NEW_IN_A_ROW):
            self._in_a_row += 1
            link = self.new.popleft()
        else:
            self._in_a_row = 0
            link = self._old.popleft()
        link.scheduled = False
        return link

    def take_new(self) -> Pumped:
        """Remove the first link that has few events left to read."""
        link = self.new.popleft()
        link.scheduled = False
        return link
