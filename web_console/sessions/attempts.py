"""How often an address may fail to log in. Pure.

The node sees all logins of a console from one address, so the console counts them for each of its clients.
"""

from typing import Final

FAILURES_MAX: Final = 5
"""Failures in a row without a wait."""
_REFILL_S: Final = 10.0
"""The time after which another failure is allowed."""
_ADDRESSES_MAX: Final = 10_000


class Attempts:
    """The failures of each address that has failed lately."""

    def __init__(self) -> None:
        self._until_s: Final[dict[str, float]] = {}
        """For each address the time at which all its failures are forgotten. The oldest failure is first."""

    def wait_s(self, address: str, now_s: float) -> float:
        """Return how long the address has to wait before its next login; 0: it may try now."""
        left = self._until_s.get(address, now_s) - now_s
        return max(0.0, left - (FAILURES_MAX - 1) * _REFILL_S)

    def failed(self, address: str, now_s: float) -> None:
        """Count a failure."""
        until = max(self._until_s.pop(address, now_s), now_s) + _REFILL_S
        if len(self._until_s) >= _ADDRESSES_MAX:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[address] = until

    def __len__(self) -> int:
        return len(self._until_s)
