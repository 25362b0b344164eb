"""The event loop of a server, and how other threads share the interpreter with it."""

import asyncio
import sys
from typing import Final

import uvloop

SWITCH_S: Final = 0.0005
"""How long a thread that computes keeps the interpreter while another thread waits for it."""


def server_runner() -> asyncio.Runner:
    """Return a runner with uvloop's event loop, and let threads take turns of `SWITCH_S`.

    After each call to the system, the event loop waits until a thread that computes gives the interpreter
    back. Python's default is 5 ms, so a thread that writes segments would add milliseconds to each iteration.
    The change is for the whole process.
    """
    sys.setswitchinterval(SWITCH_S)
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
