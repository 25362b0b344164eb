"""Events that were accepted lately, by source and id: optional duplicate detection. Pure.

Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry": by `source` and `id`, and
nothing else. It is kept in memory: what was accepted before a restart, or by another gateway, is not known.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

EVENTS_MAX: Final = 200_000
"""Events remembered of one Broker or Channel; beyond that the oldest is forgotten early."""

Identity = tuple[str, str]
"""Source and id, as `identity_of` gives them."""
_TEXT_MAX: Final = 64


def identity_of(source: str, event_id: str) -> Identity:
    """What an event is remembered by.

    Senders may make both texts as long as an event: of long ones only a digest is kept.
    """
    return _kept(source), _kept(event_id)


def _kept(text: str) -> str:
    """No attribute has a NUL, so that no text is taken for the digest of another."""
    return text if len(text) <= _TEXT_MAX else "\0" + blake2b(text.encode(), digest_size=32).hexdigest()


class Window:
    """What was accepted in the last `window_ms` milliseconds."""

    def __init__(self, window_ms: int, events_max: int = EVENTS_MAX) -> None:
        self.window_ms: Final = window_ms
        self._events_max: Final = events_max
        self._accepted: Final[OrderedDict[Identity, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accepted)

    def knows(self, event: Identity, now_ms: float) -> bool:
        """It was accepted within the window."""
        at = self._accepted.get(event)
        return at is not None and now_ms - at <= self.window_ms

    def note(self, event: Identity, now_ms: float) -> None:
        """It is accepted; `now_ms` never falls."""
        accepted = self._accepted
        accepted.pop(event, None)
        accepted[event] = now_ms
        while len(accepted) > self._events_max or now_ms - next(iter(accepted.values())) > self.window_ms:
            accepted.popitem(last=False)
