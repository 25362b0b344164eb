"""kill -9 while states are being written, repeatedly on one directory: each confirmed write is stored
completely.
"""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

from amqp_streams.storage import DirectoryStore, Severity, Tuning

ROUNDS = 6
TUNING = Tuning(journal_bytes=1 << 20, states_bytes=32 << 10)


async def write_for_ever(path: str) -> None:
    """Write an increasing number under two keys, and one of many others. Report each number when it is on the
    disk.
    """
    store = DirectoryStore.open(
        path, loop_call=asyncio.get_running_loop().call_soon_threadsafe, tuning=TUNING
    )
    first = int(store.states.get("left") or b"0") + 1
    store.states.on_written = lambda number, failure: print(first + number - 1, failure or "", flush=True)
    number = first
    while True:
        for _ in range(3):
            store.states.write(
                {"left": b"%d" % number, f"{number % 100}": b"x" * (number % 90), "right": b"%d" % number}
            )
            number += 1
        await asyncio.sleep(0)


def test_synced_data_survives_every_kill(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.test_kill_states", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(rng.randint(1, 400))]
        child.send_signal(signal.SIGKILL)
        told += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        store = DirectoryStore.open(tmp_path, loop_call=lambda call, *arguments: None, tuning=TUNING)
        whole = [line for line in told if line.endswith("\n")]
        assert all(line.split()[1:] == [] for line in whole)
        assert int(store.states.get("left") or b"0") >= int(whole[-1])
        assert store.states.get("left") == store.states.get("right")
        assert not [
            finding
            for finding in store.findings
            if finding.file == "states" and finding.severity is not Severity.NOTE
        ]
        store.close()


if __name__ == "__main__":
    asyncio.run(write_for_ever(sys.argv[1]))
