"""A short-lived cache of `<address>/$info` answers: links that ask at the same time share one.

Laws: an answer is at least as new as the question. Answers are computed in steps. Answers about one log are
computed one after the other, and links that ask at the same time share them: so the work does not grow with
the number of links.

Spec: Event Streams 6.
"""

from collections import OrderedDict
from typing import Final

from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import info
from amqp_streams.streams.redirects import Redirected
from amqp_streams.streams.steps import Steps

KEPT_MS: Final = 200
"""An answer is not reused after this time, even if nothing changed."""
ANSWERS_MAX: Final = 16
"""The most cached answers; one takes up to some 200 KB."""


class _Computed:
    """An answer that is computed in steps. `message` is None until the last step.

    `sync`: the setting of this name, which is a part of the answer. `before`: an older answer about the same
    log, which is completed first.
    """

    __slots__ = ("_before", "_elsewhere", "_log", "_mark", "_steps", "_sync", "_until_ms", "message")

    def __init__(
        self, log: StoredLog, elsewhere: Redirected, sync: str, before: "_Computed | None" = None
    ) -> None:
        self._log: Final = log
        self._elsewhere: Final = elsewhere
        self._sync: Final = sync
        self._before = before
        self._steps: Steps[bytes] | None = None
        self._mark = self._until_ms = 0
        self.message: bytes | None = None

    def is_about(self, log: StoredLog, elsewhere: Redirected) -> bool:
        """Whether it is about this log with these settings, and these owners of its partitions."""
        return self._log is log and self._elsewhere == elsewhere

    def is_new(self, now_ms: int) -> bool:
        """Whether it has all events that were accepted until now."""
        if self.message is None and self._steps is None:  # its first step reads the log later
            return True
        return self._mark == _mark(self._log) and (self.message is None or now_ms < self._until_ms)

    def step(self, now_ms: int) -> None:
        """Do one step.

        Raises:
            StorageError: the disk failed. The next step begins again.
        """
        if self._before is not None:
            if self._before.message is None:
                self._before.step(now_ms)
                return
            self._before = None
        if self._steps is None:
            self._mark, self._until_ms = _mark(self._log), now_ms + KEPT_MS
            self._steps = _message(self._log, self._sync, self._elsewhere)
        try:
            next(self._steps)
        except StopIteration as ended:
            self.message = ended.value
        except Exception:
            self._steps = None
            raise


class Informed:
    """The answers about logs that were computed last, or are being computed."""

    def __init__(self, sync: str) -> None:
        self._sync: Final = sync
        self._last: Final[OrderedDict[str, _Computed]] = OrderedDict()

    def message(self, log: StoredLog, elsewhere: Redirected, now_ms: int) -> Steps[bytes]:
        """The answer about a log, with all events accepted before the first step.

        `now_ms`: a monotonic clock. Raises StorageError: the disk failed.
        """
        last = self._last.get(log.name)
        computed = last if last is not None and last.is_about(log, elsewhere) else None
        if computed is None or not computed.is_new(now_ms):
            computed = _Computed(log, elsewhere, self._sync, computed)
            self._last[log.name] = computed
            # The answer that was begun first is dropped first.
            self._last.move_to_end(log.name)
            if len(self._last) > ANSWERS_MAX:
                self._last.popitem(last=False)
        while computed.message is None:
            computed.step(now_ms)
            if computed.message is None:
                yield
        return computed.message

    def forget(self) -> None:
        """A partition failed: compute the next answers again."""
        self._last.clear()


def _mark(log: StoredLog) -> int:
    # Starts and ends never decrease, so the sum differs after each change of the log.
    return sum([partition.start + partition.end for partition in log.partitions])


def _message(log: StoredLog, sync: str, elsewhere: Redirected) -> Steps[bytes]:
    return info.value_message((yield from info.log_info(log, sync, elsewhere)))
