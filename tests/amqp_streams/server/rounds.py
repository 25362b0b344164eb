"""Runs the seeded rounds of a test module in a process of their own."""

import subprocess
import sys


def run_rounds_with_freed_memory_overwritten(module: str, count: int) -> None:
    """Call `module.one_round` with `count` seeds in a process whose memory is overwritten when it is freed,
    so that a use after that shows. Fails unless the process ends normally.
    """
    code = (
        "from random import Random; import structlog;"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50));"
        f"from {module} import one_round;"
        f"[one_round(Random(seed)) for seed in range(1000, {1000 + count})]; print('alive')"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={"MALLOC_PERTURB_": "165", "PYTHONPATH": ".", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-3000:]
