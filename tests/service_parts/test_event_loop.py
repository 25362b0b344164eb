"""The event loop of a server is fast, and other threads give the interpreter back soon."""

import subprocess
import sys

from service_parts.event_loop import SWITCH_S

PROGRAM = """
import asyncio, sys
from service_parts.event_loop import server_runner

async def main():
    return type(asyncio.get_running_loop()).__module__

with server_runner() as runner:
    print(runner.run(main()), sys.getswitchinterval())
"""


def test_a_server_has_a_fast_event_loop_and_its_threads_switch_often() -> None:
    # In a process of its own: the interval is one of the whole interpreter.
    told = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True).split()
    assert told == ["uvloop", str(SWITCH_S)]
