"""The end of a run that does not end by itself: a budget of processor time."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_AGAIN_S: Final = 5.0


class EndlessError(BaseException):
    """A run takes so much processor time that it probably never ends.

    It is not an `Exception`, so that the node cannot catch it.
    """


@contextmanager
def cpu_budget(seconds: float) -> Iterator[None]:
    """Raise `EndlessError` where the code is, when the block has used so much processor time.

    An asyncio task can keep the exception for itself, so it is raised again every few seconds. Only for the
    main thread. The clock is that of the profiling timer: pytest-timeout uses another one.
    """

    def spent(_number: int, _frame: FrameType | None) -> None:
        raise EndlessError(f"the run does not end within {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, spent)
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
