"""Asks a URL twenty times a second, in a process of its own, and prints how long each answer took.

A process of its own, because the load generator is busy: what is measured is the server, not the load.
"""

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

EVERY_S: Final = 0.05
ANSWER_S_MAX: Final = 60.0


@dataclass
class Probed:
    """Answer times in ms, filled when the probe has ended.

    `failed`: requests without an answer with status 200 or 503.
    """

    latencies_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def at(self, share: float) -> float:
        """The quantile of the latencies; NaN without any."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


@contextmanager
def probing(address: str, path: str = "/readyz") -> Iterator[Probed]:
    """Probe `http://address/path` while inside; the figures are there after it."""
    probed = Probed()
    command = [sys.executable, "-m", "bench.scale.probe", address, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield probed
        finally:
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate()
            found = json.loads(printed or "{}")
            probed.latencies_ms = found.get("latencies_ms", [])
            probed.failed = found.get("failed", 0)


def main(address: str, path: str) -> None:
    """Probe until SIGTERM, then print the figures as JSON."""
    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    latencies_ms: list[float] = []
    failed = 0
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S_MAX)
    while not ending:
        began = time.perf_counter()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            failed += answer.status not in {200, 503}
            latencies_ms.append((time.perf_counter() - began) * 1000)
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        time.sleep(EVERY_S)
    print(json.dumps({"latencies_ms": latencies_ms, "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
