"""Which nodes were refused and why: for the log, once each, and for the problems of the node.

Law: what any program on the network can cause is bounded. At most `KEPT_MAX` reasons are known, and at most
`LINES_MAX` are logged in `LINES_S`.
"""

from dataclasses import dataclass
from typing import Final

KEPT_MAX: Final = 256
"""Networks times kinds of reasons. The one that came longest ago is forgotten."""
LINES_MAX: Final = 20
LINES_S: Final = 60.0
LATELY_S: Final = 60.0
"""How long a refusal is a problem of the node."""
SHOWN_MAX: Final = 10


@dataclass(slots=True)
class _Refusal:
    words: str
    at: float
    logged: bool


class Refusals:
    """The refusals by network and kind."""

    def __init__(self) -> None:
        self._kept: Final[dict[tuple[str, str], _Refusal]] = {}
        self._since = float("-inf")
        self._lines = 0

    def add(self, network: str, kind: str, words: str, now: float) -> bool:
        """A node of this network was refused. Returns whether to log it."""
        known = self._kept.pop((network, kind), None)
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        logs = (known is None or not known.logged) and self._may_log(now)
        self._kept[network, kind] = _Refusal(words, now, logs or (known is not None and known.logged))
        return logs

    def accepted(self, network: str) -> None:
        """A node of this network was accepted: its next refusal is news."""
        for key in [key for key in self._kept if key[0] == network]:
            del self._kept[key]

    def lately(self, now: float) -> tuple[str, ...]:
        """The last refusals, in words."""
        recent = [
            f"a node at {network} was refused: {each.words}"
            for (network, _), each in self._kept.items()
            if now - each.at < LATELY_S
        ]
        return tuple(recent[-SHOWN_MAX:])

    def _may_log(self, now: float) -> bool:
        if now - self._since >= LINES_S:
            self._since, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES_MAX
