"""Knative's own Broker data plane on loopback: ingress, in-memory channel and filter, each a process as in a
cluster. Nothing is durable: its 202 says that every subscriber answered.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.process import usage
from bench.products.places import home
from bench.server import free_port, stop

ROLES: Final = ("filter", "channel", "ingress")


@dataclass(frozen=True, slots=True)
class Knative:
    """A running data plane with one Broker."""

    url: str
    pids: Mapping[str, int]

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        return sum(usage(pid).cpu_seconds for pid in self.pids.values())


def version() -> str:
    """The version of knative.dev/eventing that `make peers` builds."""
    for line in (Path(__file__).parent / "knative" / "go.mod").read_text().splitlines():
        words = line.removeprefix("require").split()
        if words[:1] == ["knative.dev/eventing"]:
            return words[1]
    return ""


@contextmanager
def running(folder: Path, types: Sequence[str], subscriber: str) -> Iterator[Knative]:
    """Run it with one Trigger for each type, all with the same subscriber.

    Raises:
        RuntimeError: it is not installed, or does not start.
    """
    place = home("knative")
    if place is None:
        message = "Knative's data plane is not installed: make peers"
        raise RuntimeError(message)
    triggers = folder / "triggers.json"
    made = [{"name": f"t{n}", "type": one, "subscriber": subscriber} for n, one in enumerate(types)]
    triggers.write_text(json.dumps(made))
    command = [str(place / "knative"), "-triggers", str(triggers)]
    for role in ROLES:
        command += [f"-{role}", f"127.0.0.1:{free_port()}"]
    processes: list[subprocess.Popen[bytes]] = []
    url = ""
    try:
        with (folder / "knative.log").open("ab") as words:
            for role in ROLES:
                one = subprocess.Popen(
                    [*command, "-role", role],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=words,
                )
                processes.append(one)
                assert one.stdout is not None
                line = one.stdout.readline()
                if not line:
                    message = f"Knative did not start: {(folder / 'knative.log').read_text()[-1000:]}"
                    raise RuntimeError(message)
                url = json.loads(line)["broker"]
        pids = {role: one.pid for role, one in zip(ROLES, processes, strict=True)}
        yield Knative(url, pids)
    finally:
        for one in processes:
            stop(one)
            if one.stdout is not None:
                one.stdout.close()
