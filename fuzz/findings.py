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

from fuzz.budget import cost_s, peak_bytes
from fuzz.target import Target

HANG_TIMES: Final = 10
HANG_S: Final = 30.0
"""An input is interrupted after so many times its budget, or after so many seconds if that is sooner."""

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("amqp_streams", "event_formats", "knative_gateway", "service_parts", "spark_connector")
"""What is fuzzed, and instrumented for coverage."""
_PACKAGES: Final = tuple(f"{ROOT / name}/" for name in PACKAGES)


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


def examine(
    target: Target, data: bytes, *, slack: float = 1.0, memory: bool = True
) -> tuple[Hashable, Finding | None]:
    """Run one input: what it showed, and what was wrong. `slack`: times its budget that it may take;
    `memory`: whether its memory is measured, which takes about as long again.
    """
    allowed = target.seconds_for(len(data)) * slack
    shown, finding, seconds = _once(target, data, allowed)
    if finding is None and seconds > allowed:
        again = cost_s(lambda: _once(target, data, allowed))
        if again > allowed:
            words = f"took {again:.2f} s, {allowed:.2f} s are allowed for {len(data)} bytes"
            return shown, Finding(target.name, "slow", data, words, "slow")
    if finding is None and memory:
        finding = _too_large(target, data, allowed)
    return shown, finding


def _too_large(target: Target, data: bytes, allowed_s: float) -> Finding | None:
    """The first run of an input may fill caches, so only what it takes again counts."""
    allowed = target.bytes_for(len(data))
    for _ in range(2):
        used = peak_bytes(lambda: _once(target, data, allowed_s))
        if used <= allowed:
            return None
    words = f"had {used:,} bytes in memory, {allowed:,} are allowed for {len(data)} bytes"
    return Finding(target.name, "memory", data, words, "memory")


def _once(target: Target, data: bytes, allowed_s: float) -> tuple[Hashable, Finding | None, float]:
    began = time.process_time()
    before = signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, min(allowed_s * HANG_TIMES, max(allowed_s, HANG_S)))
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
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGES)] or frames
    place = (
        f"{kind} {type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"
        if ours
        else f"{kind} {type(error).__name__}"
    )
    return Finding(target.name, kind, data, words, place)
