"""Which of a subscriber's sources begins the next event. Pure.

Laws: sources that have an event to begin take turns; finding the next one costs the same however many there
are.
"""

from typing import Final

from knative_gateway.dispatcher.subscribers.source import Source


class RoundRobin:
    """The sources with an event to begin, in the order of their turns."""

    def __init__(self) -> None:
        self._ready: Final[dict[Source, None]] = {}

    def wake(self, source: Source) -> None:
        """The source was given an event, or completed one that others waited for: it may have one to begin
        now.
        """
        if source.window.startable:
            self._ready.setdefault(source)

    def next(self) -> Source | None:
        """The source whose turn it is; None: no source has an event to begin."""
        return next(iter(self._ready), None)

    def taken(self, source: Source) -> None:
        """The source took its turn: the others go first now."""
        self._ready.pop(source, None)
        self.wake(source)

    def leave(self, source: Source) -> None:
        """The source begins nothing more."""
        self._ready.pop(source, None)
