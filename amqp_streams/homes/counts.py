"""What the homes of a node have done since its process began. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What all homes of a node have done.

    `fences`: how often a bucket was fenced. `in_order`, `after_loss`: how often a bucket was taken over from
    a home that had left it in order, and from one that had not. `granted`: links; `decision_ms`: how long
    they waited for it together. `ended`: links that were refused, evicted or stolen.
    """

    fences: int = 0
    in_order: int = 0
    after_loss: int = 0
    granted: int = 0
    decision_ms: int = 0
    ended: int = 0
