"""Events that were there before: the same source and id. Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry".

Optional: duplicates are always accepted, and what is done about them is the user's choice. Laws: an event that was not seen is never called
a duplicate; what is remembered is bounded in time and number, so that a duplicate may go unseen, the oldest first.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.cloudevents.event import CloudEvent

REMEMBERED_MAX: Final = 100_000


@dataclass(slots=True, eq=False)
class Duplicates:
    """What was seen in the last `window_ms`, `remembered_max` events at most. The clock comes as an argument and does not go back."""

    window_ms: int
    remembered_max: int = REMEMBERED_MAX
    _seen: OrderedDict[tuple[object, object], int] = field(default_factory=OrderedDict, init=False)

    def seen(self, event: CloudEvent, now_ms: int) -> bool:
        """Whether an event of the same source and id was there within the window; it is remembered from its first time on."""
        self._forget(now_ms)
        key = (event.attributes.get("source"), event.attributes.get("id"))
        if key in self._seen:
            return True
        self._seen[key] = now_ms
        if len(self._seen) > self.remembered_max:
            self._seen.popitem(last=False)
        return False

    def _forget(self, now_ms: int) -> None:
        while self._seen and next(iter(self._seen.values())) <= now_ms - self.window_ms:
            self._seen.popitem(last=False)
