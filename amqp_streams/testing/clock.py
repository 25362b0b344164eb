"""Time and turns of the loop in a test's own hand."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final


class ManualClock:
    """A clock that stands still until it is moved. Call it for the time in ms since the epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> int:
        """Move on (or back, with a negative number); returns the new time."""
        self.now_ms += ms
        return self.now_ms


class ManualLoop:
    """In place of an event loop's `call_soon_threadsafe`: keeps the calls until the test runs them."""

    def __init__(self) -> None:
        self._calls: Final[SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]]] = SimpleQueue()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Remember a call; from any thread."""
        self._calls.put((function, arguments))

    def run_ready(self) -> int:
        """Run what is there, and what comes meanwhile; returns how many calls that were."""
        count = 0
        while True:
            try:
                function, arguments = self._calls.get_nowait()
            except Empty:
                return count
            function(*arguments)
            count += 1

    def run_until(self, condition: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
        """Run calls as they come until `condition()` holds.

        Raises:
            TimeoutError: nothing came for `timeout_s` seconds.
        """
        while not condition():
            try:
                function, arguments = self._calls.get(timeout=timeout_s)
            except Empty:
                message = f"no call came for {timeout_s} s"
                raise TimeoutError(message) from None
            function(*arguments)
