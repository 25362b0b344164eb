"""Optional duplicate detection: recently accepted events, by source and id. Pure.

Memory is lost at a restart and is not shared: events that were accepted before a restart, or by another
gateway, are not detected.

Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry": `source` and `id` only.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

EVENTS_MAX: Final = 200_000
"""Events that are remembered for one Broker or Channel. If there are more, the oldest are forgotten early."""

Identity = tuple[str, str]
"""Source and id, as `identity_of` gives them."""
_TEXT_MAX: Final = 64


def identity_of(source: str, event_id: str) -> Identity:
    """Return the key under which an event is remembered.

    Senders choose the length of source and id, so long texts are replaced by a digest.
    """
    return _kept(source), _kept(event_id)


def _kept(text: str) -> str:
    """Attributes do not contain NUL, so a text cannot equal the digest of another text."""
    return text if len(text) <= _TEXT_MAX else "\0" + blake2b(text.encode(), digest_size=32).hexdigest()


class Window:
    """Events that were accepted in the last `window_ms` milliseconds."""

    def __init__(self, window_ms: int, events_max: int = EVENTS_MAX) -> None:
        self.window_ms: Final = window_ms
        self._events_max: Final = events_max
        self._accepted: Final[OrderedDict[Identity, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accepted)

    def knows(self, event: Identity, now_ms: float) -> bool:
        """Return whether the event was accepted within the window."""
        at = self._accepted.get(event)
        return at is not None and now_ms - at <= self.window_ms

    def note(self, event: Identity, now_ms: float) -> None:
        """Remember an accepted event. `now_ms` must not decrease."""
        accepted = self._accepted
        # Removed first, so that the event moves to the end: the dictionary stays in the order of time, and
        # the oldest are at its beginning.
        accepted.pop(event, None)
        accepted[event] = now_ms
        while len(accepted) > self._events_max or now_ms - next(iter(accepted.values())) > self.window_ms:
            accepted.popitem(last=False)
