"""Which of a subscriber's partitions begins the next event. Pure.

Laws: those that have one to begin take turns; what it costs to find the next does not depend on how many there are.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from knative_gateway.dispatcher.subscribers.redriving import Again
    from knative_gateway.dispatcher.subscribers.track import Track


class Turns:
    """The tracks with an event to begin, the next one first."""

    def __init__(self) -> None:
        self._ready: Final[dict[Track | Again, None]] = {}

    def stir(self, track: "Track | Again") -> None:
        """It was given an event, or completed one that others waited for: it may have one to begin now."""
        if track.window.startable:
            self._ready.setdefault(track)

    def next(self) -> "Track | Again | None":
        """Whose turn it is; None: nobody has an event to begin."""
        return next(iter(self._ready), None)

    def taken(self, track: "Track | Again") -> None:
        """It took its turn: the others go first now."""
        self._ready.pop(track, None)
        self.stir(track)

    def leave(self, track: "Track | Again") -> None:
        """It begins nothing more."""
        self._ready.pop(track, None)
