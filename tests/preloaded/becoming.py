"""[io] A fork becomes the process that is asked for, and ends as that would.

Only the last step of an interpreter is left out: it clears all modules, which copies each of their pages.
"""

import atexit
import ctypes
import faulthandler
import fcntl
import io
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NoReturn

from tests.preloaded.requests import Request

_PR_SET_PDEATHSIG: Final = 1


def become(request: Request, descriptors: Sequence[int]) -> NoReturn:
    """Run what is asked for as __main__, in its folder, environment and session, with its descriptors."""
    _take(descriptors, (0, 1, 2, *request.kept))
    if request.ends_with is not None:
        _end_with(request.asks, request.ends_with)
    if request.new_session:
        os.setsid()
    os.chdir(request.folder)
    os.environb.clear()
    os.environb.update(request.environment)
    _open_standard_streams()
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.argv = list(request.arguments)
    _end(_run(request))


def _end_with(parent: int, sent: signal.Signals) -> None:
    """Ask the kernel to send a signal when `parent` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sent, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _take(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    # First above all numbers, so that no descriptor is overwritten before it is moved.
    above = max(64, *numbers) + 1
    moved = []
    for descriptor in descriptors:
        moved.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above))
        os.close(descriptor)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _open_standard_streams() -> None:
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = _text(0, "rb")
    sys.stdout = _text(1, "wb", at_once=at_once)
    sys.stderr = _text(2, "wb", at_once=at_once, errors="backslashreplace")


def _text(descriptor: int, mode: str, *, at_once: bool = False, errors: str = "strict") -> io.TextIOWrapper:
    binary = open(descriptor, mode, buffering=0 if at_once else -1, closefd=False)  # noqa: SIM115  it stays open
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=descriptor == 2, write_through=at_once)


def _run(request: Request) -> int:
    """Return the exit status, negative for the signal that ends the process."""
    try:
        if request.code is None:
            runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(request.code, "<string>", "exec"), main.__dict__)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _end(status: int) -> NoReturn:
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{error!r}", file=sys.stderr)
        status = 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
