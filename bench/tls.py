"""`python -m bench.tls`: what TLS costs the node, in turns with connections without it.

The load generator has no TLS, so `socat` stands between it and the node, for both kinds. `socat` and the load
share the cores with the node: compare the CPU times of the node, not the rates.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import load
from bench.server import Server, free_port, running

SIZES: Final = (100, 1024)
MODES: Final = {"send": (), "recv": load.FROM_EARLIEST}
RUN_ID: Final = 7
START_S: Final = 0.5


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    files = ("-keyout", str(key), "-out", str(certificate))
    command = ("openssl", "req", "-x509", *curve, "-nodes", *files, "-subj", "/CN=localhost", "-days", "2")
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@contextmanager
def _relay(target: str) -> Iterator[str]:
    """Connect a port to `target`, an address of socat; yields the URL of the port."""
    port = free_port()
    listen = f"TCP-LISTEN:{port},fork,reuseaddr,bind=127.0.0.1"
    with subprocess.Popen(("socat", "-b", "65536", listen, target)) as process:
        try:
            time.sleep(START_S)
            yield f"amqp://127.0.0.1:{port}"
        finally:
            process.terminate()


def _measure(server: Server, target: str, size: int, count: int) -> dict[str, float]:
    """Microseconds of the node's CPU for an event, for each direction.

    Raises:
        RuntimeError: events were lost or refused.
    """
    found = {}
    with _relay(target) as url:
        for mode, options in MODES.items():
            before = server.usage().cpu_seconds
            sizes = ("--size", str(size), *options)
            done = load.run(mode, url, "events", count=count, run_id=RUN_ID, options=sizes)
            if not done.ok:
                raise RuntimeError(done.error or str(done.figures))
            found[mode] = (server.usage().cpu_seconds - before) / count * 1e6
    return found


def measure(folder: Path, size: int, count: int, *, tls: bool) -> dict[str, float]:
    """Start a node with a TLS listener, and measure it through that one or through the other."""
    certificate, key = _certificate(folder)
    port = free_port()
    listener = ("--listen-tls", f"127.0.0.1:{port}")
    options = (*listener, "--tls-certificate", str(certificate), "--tls-key", str(key))
    with running(folder / "node", options=options) as server:
        target = f"OPENSSL:127.0.0.1:{port},verify=0" if tls else f"TCP:127.0.0.1:{server.port}"
        return _measure(server, target, size, count)


def main() -> None:
    """Print a row for each size and direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=150_000)
    given = parser.parse_args()
    if missing := [name for name in ("socat", "openssl") if shutil.which(name) is None]:
        parser.error(f"needs {' and '.join(missing)}: apt-get install {' '.join(missing)}")
    load.build()
    samples: dict[tuple[int, str, bool], list[float]] = defaultdict(list)
    for _ in range(given.rounds):
        for size in SIZES:
            for tls in (False, True):
                with tempfile.TemporaryDirectory(prefix="tls-") as name:
                    for mode, cpu in measure(Path(name), size, given.count, tls=tls).items():
                        samples[size, mode, tls].append(cpu)
    print("| bytes | direction | without TLS, us | with TLS, us | ratio |")
    print("|---|---|---|---|---|")
    for size in SIZES:
        for mode in MODES:
            plain, secure = (statistics.median(samples[size, mode, tls]) for tls in (False, True))
            print(f"| {size} | {mode} | {plain:.2f} | {secure:.2f} | {secure / plain:.2f} |")


if __name__ == "__main__":
    main()
