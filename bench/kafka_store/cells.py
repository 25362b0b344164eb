"""What is measured, one cell at a time: how fast, and the CPU time of the processes that took part."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench import load
from bench.amqp.processes import BIN

TIMEOUT_S: Final = "60"
WINDOW: Final = 10_000
PAIRED: Final = 1000
"""Events in flight, and credits, one by one."""
IN_BATCHES: Final = "in batches"
ONE_BY_ONE: Final = "one by one"


@dataclass(frozen=True, slots=True)
class Figure:
    """Of one run of a cell: events a second; microseconds of CPU for an event."""

    rate: float
    serving_us: float
    """Of the node, or of the broker that is compared."""
    brokers_us: float
    """Of the Kafka brokers together."""
    client_us: float


@dataclass(frozen=True, slots=True)
class Cell:
    """What is done: `way` is `in` or `out`, `how` is `IN_BATCHES` or `ONE_BY_ONE`."""

    how: str
    way: str
    size: int

    @property
    def name(self) -> str:
        """As in the table: `in, in batches, 100 B`."""
        return f"{self.way}, {self.how}, {self.size} B"


def amqp(
    cell: Cell, url: str, address: str, count: int, *, reading: Sequence[str] = load.FROM_EARLIEST
) -> list[str]:
    """The command of our generators for a cell. `reading`: options of the readers of a log or queue."""
    common = ["--url", url, "--address", address, "--count", str(count), "--size", str(cell.size)]
    common += ["--run-id", "7", "--timeout", TIMEOUT_S]
    match cell.how, cell.way:
        case (str(how), "in") if how == IN_BATCHES:
            return [f"{BIN}/batch_send", *common, "--window", str(WINDOW), "--partitions", "1"]
        case (str(how), _) if how == IN_BATCHES:
            more = ["--batched", "--presettled", "--credit", "16", "--max-frame", str(1 << 20)]
            return [f"{BIN}/amqp_load", "recv", *common, *more, *reading, "--partition", "0"]
        case _, "in":
            return [f"{BIN}/amqp_load", "send", *common, "--window", str(PAIRED), "--durable"]
        case _:
            return [f"{BIN}/amqp_load", "recv", *common, "--credit", str(PAIRED), *reading]


def direct(cell: Cell, servers: str, topic: str, count: int) -> list[str]:
    """The command of confluent-kafka for a cell."""
    mode = "send" if cell.way == "in" else "recv"
    command = [sys.executable, "-m", "bench.kafka_store.direct", mode, "--servers", servers]
    command += ["--topic", topic, "--count", str(count), "--size", str(cell.size)]
    return [*command, "--window", str(WINDOW)]


def run(
    command: Sequence[str], count: int, *, serving: Callable[[], float], brokers: Callable[[], float]
) -> Figure:
    """Run a command of `amqp` or `direct`. `serving`, `brokers`: CPU seconds of these processes so far.

    Raises:
        RuntimeError: not everything was accepted or arrived.
    """
    before = serving(), brokers()
    found = generated(command)
    after = serving(), brokers()
    each = 1e6 / count
    return Figure(
        rate=float(found["msgs_per_s"]),
        serving_us=(after[0] - before[0]) * each,
        brokers_us=(after[1] - before[1]) * each,
        client_us=float(found["client_cpu_s"]) * each,
    )


def generated(command: Sequence[str]) -> Mapping[str, Any]:
    """The line of JSON of a generator.

    Raises:
        RuntimeError: not everything was accepted or arrived.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        found = {"ok": False, "error": done.stderr.strip()[-500:]}
    if not found["ok"]:
        message = f"{command[0].rsplit('/', 1)[-1]} {command[1]}: {found['error']}"
        raise RuntimeError(message)
    return found


def median(figures: Sequence[Figure]) -> Figure:
    """The medians of several runs."""
    return Figure(
        *(
            statistics.median(getattr(figure, field) for figure in figures)
            for field in ("rate", "serving_us", "brokers_us", "client_us")
        )
    )
