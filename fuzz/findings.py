"""What an input did wrong, how it is told, and where it is kept."""

import hashlib
import logging
import signal
import sys
import time
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import structlog
from structlog.typing import EventDict, WrappedLogger

from fuzz.target import Target

HANG_TIMES: Final = 10
"""Times `seconds_max` after which an input is interrupted."""


class _Hang(BaseException):
    """Raised by the timer; no `except Exception` on the way swallows it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind`: error, slow, hang, memory or crash. `place`: findings with the same one are told once."""

    target: str
    kind: str
    data: bytes
    words: str
    place: str

    def keep(self, folder: Path) -> Path:
        """Write the input, and beside it what happened and the line that does it again."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.target}-{self.kind}-{hashlib.sha256(self.data).hexdigest()[:12]}.input"
        path.write_bytes(self.data)
        path.with_suffix(".txt").write_text(
            f"again: {replay_line(self.target, path)}\n\n{self.words}\n\n{self.data[:2000]!r}\n"
        )
        return path


def replay_line(target: str, path: Path) -> str:
    """The command that runs one input again."""
    return f".venv/bin/python -m fuzz replay {target} {path}"


def examine(target: Target, data: bytes) -> tuple[Hashable, Finding | None]:
    """Run one input: what it showed, and what was wrong."""
    shown, finding, seconds = _once(target, data)
    if finding is None and seconds > target.seconds_max:
        again = min(seconds, _once(target, data)[2])  # a machine that was busy elsewhere is not a finding
        if again > target.seconds_max:
            words = f"took {again:.2f} s, {target.seconds_max} s are allowed"
            return shown, Finding(target.name, "slow", data, words, "slow")
    return shown, finding


def _once(target: Target, data: bytes) -> tuple[Hashable, Finding | None, float]:
    began = time.process_time()
    before = signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, target.seconds_max * HANG_TIMES)
    shown: Hashable = None
    finding: Finding | None = None
    with _logged_exceptions() as logged:
        try:
            shown = target.run(data)
        except KeyboardInterrupt:
            raise
        except _Hang as error:
            finding = _finding(target, "hang", data, error)
        except BaseException as error:  # noqa: BLE001  whatever it is: this is what is looked for
            finding = _finding(target, "error", data, error)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
    if logged and (finding is None or finding.kind == "error"):  # what was raised afterwards is a consequence
        finding = _finding(target, "error", data, logged[0])
    return shown, finding, time.process_time() - began


@contextmanager
def _logged_exceptions() -> Iterator[list[BaseException]]:
    """Collect the exceptions that the code under test logs instead of raising: its guards keep them from the
    neighbours, not from us.
    """
    logged: list[BaseException] = []

    def collect(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if event.get("exc_info") and (error := sys.exception()) is not None:
            logged.append(error)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[collect], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    try:
        yield logged
    finally:
        structlog.configure(**before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise _Hang


def _finding(target: Target, kind: str, data: bytes, error: BaseException) -> Finding:
    words = "".join(traceback.format_exception(error, limit=-25))
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "amqp_streams" in frame.filename] or frames
    place = (
        f"{kind} {type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"
        if ours
        else f"{kind} {type(error).__name__}"
    )
    return Finding(target.name, kind, data, words, place)
