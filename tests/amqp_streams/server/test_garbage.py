"""The rule for Python's search for garbage, in processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from amqp_streams.server import garbage
from tests.preloaded.launching import IN_A_FORK

RULES = Path(__file__).with_name("garbage_rules.py")


@pytest.mark.heavy
def test_the_rule_holds_in_a_process_with_few_objects() -> None:
    """Each of the searches that the tests of the rule make examines all objects of its process. There are
    millions in one that has collected all tests.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """
import asyncio, gc, os, signal, sys
from pathlib import Path
from amqp_streams.config import Listener, NodeSettings
from amqp_streams.server import run, serve
settings = NodeSettings(data_dir=Path(sys.argv[1]), listen=(Listener(host="127.0.0.1", port=0),))
print("before", gc.get_threshold())

async def embedded():
    stop = asyncio.Event()
    await serve(settings, ready=lambda _: (print("embedded", gc.get_threshold()), stop.set()), stop=stop)

asyncio.run(embedded())
run(settings, ready=lambda _: (print("alone", gc.get_threshold()), os.kill(os.getpid(), signal.SIGTERM)))
print("after", gc.get_threshold())
"""


def test_the_rule_is_in_force_in_a_process_of_a_node_and_not_in_a_program_that_embeds_one(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FORK + PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    rules = dict(
        line.split(" ", 1)
        for line in done.stdout.splitlines()
        if line.startswith(("before ", "embedded ", "alone ", "after "))
    )
    assert rules["before"] == rules["embedded"] == rules["after"]
    assert rules["alone"] == str((garbage.NEW_OBJECTS, 10, garbage._NEVER))
