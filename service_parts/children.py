"""[io] Child processes that end with their parent."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int, sent: signal.Signals) -> Callable[[], None] | None:
    """Return a function for the child before `exec`. It asks the kernel to send the child a signal when the
    parent ends, also if the parent is killed.

    Linux only; elsewhere None.
    """
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork, because the child must do as little as possible before `exec`.
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sent, 0, 0, 0)
        # The parent may have ended before prctl: then the kernel does not send the signal.
        if os.getppid() != parent:
            os._exit(1)

    return ask


async def end_child(process: asyncio.subprocess.Process, within_s: float) -> bool:
    """End a process: SIGTERM, then SIGKILL after `within_s`. Returns whether SIGTERM was enough."""
    if process.returncode is not None:
        return True
    process.terminate()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    except asyncio.CancelledError:
        process.kill()  # the cancelled caller does not wait for it
        raise
    return True
