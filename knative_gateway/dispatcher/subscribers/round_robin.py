"""Which source of a subscriber begins the next event. Pure.

Sources with an event to begin take turns. The cost of finding the next source does not depend on their
number.
"""

from typing import Final

from knative_gateway.dispatcher.subscribers.source import Source


class RoundRobin:
    """`sources`: those with an event to begin, in the order of their turns."""

    def __init__(self) -> None:
        self.sources: Final[dict[Source, None]] = {}

    def wake(self, source: Source) -> None:
        """Add a source that may have an event to begin: it was given an event, or completed one that others
        waited for.
        """
        if source.window.startable:
            self.sources.setdefault(source)

    def next(self) -> Source | None:
        """Return the source whose turn it is; None if no source has an event to begin."""
        return next(iter(self.sources), None)

    def taken(self, source: Source) -> None:
        """End the turn of a source: the other sources go first now."""
        self.sources.pop(source, None)
        self.wake(source)

    def leave(self, source: Source) -> None:
        """Remove a source."""
        self.sources.pop(source, None)
