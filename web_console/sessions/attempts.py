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
    """The failures of each address that has failed lately, and the logins of each that are not answered yet.

    A login that is not answered yet counts as a failure: otherwise all logins that are sent at once would be
    tried.
    """

    def __init__(self) -> None:
        self._until_s: Final[dict[str, float]] = {}
        """For each address the time at which all its failures are forgotten. The oldest failure is first."""
        self._running: Final[dict[str, int]] = {}

    def begin(self, address: str, now_s: float) -> float:
        """Begin a login. Returns how long the address has to wait before it may; 0: it has begun."""
        running = self._running.get(address, 0)
        left = self._until_s.get(address, now_s) - now_s + running * _REFILL_S
        wait_s = max(0.0, left - (FAILURES_MAX - 1) * _REFILL_S)
        if wait_s == 0:
            self._running[address] = running + 1
        return wait_s

    def end(self, address: str, now_s: float, *, failed: bool) -> None:
        """End a login that has begun."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        if not failed:
            return
        until = max(self._until_s.pop(address, now_s), now_s) + _REFILL_S
        if len(self._until_s) >= _ADDRESSES_MAX:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[address] = until

    def __len__(self) -> int:
        return len(self._until_s)
