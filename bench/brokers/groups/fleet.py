"""[io] The processes with consumers: which consumers each of them has, and how they are disturbed."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.brokers.groups.member import Role, Settle, Spec
from bench.brokers.groups.traces import Journals, Slot
from bench.products.places import PROJECT

SLOTS: Final = 3
CLAIMS: Final = "group claims"
"""The key of the claimants."""
SECOND: Final = "link sub-second sub-second"
"""The key of the subscription of Proton, which looks each half second whether it has a connection."""
_CLAIMED: Final = 2
"""How many partitions claimants take from each other with epochs."""
_SETTLES: Final[Sequence[Settle]] = ("auto", "manual", "second")
_END_S: Final = 30.0


def roles(slot: int, started: int, log: str, groups: int) -> list[Role]:
    """The consumers of a process. `started`: how many processes the slot had before.

    Each group has a member in each process, and a second one in the first process. Claimants of the same
    partitions are in the first two processes, subscriptions in the last ones.
    """
    own = f"p{slot}.{started}"
    found = []
    for settle in _SETTLES[:2]:
        for index in range(groups):
            group = f"{settle}{index}"
            for number in range(2 if slot == 0 else 1):
                name = f"{own}.{group}.{number}"
                found.append(Role("member", name, log, f"group {group}", settle, group))
    if slot < _CLAIMED:
        found += [
            Role("claimant", f"{own}.claim{index}", log, CLAIMS, "manual", "claims", index)
            for index in range(_CLAIMED)
        ]
    settle = _SETTLES[slot]
    name = f"sub-{settle}"
    return [*found, Role("subscription", name, log, f"link {name} {name}", settle)]


def slots(log: str, partitions: int, groups: int) -> set[Slot]:
    """What has consumers, in all processes together."""
    found = set[Slot]()
    for role in (each for slot in range(SLOTS) for each in roles(slot, 0, log, groups)):
        own = [role.partition] if role.kind == "claimant" else range(partitions)
        found |= {(role.key, partition) for partition in own}
    return found


@dataclass(slots=True)
class Fleet:
    """`urls`: the nodes, by slot in the order in which its clients try them."""

    folder: Path
    urls: Sequence[tuple[str, ...]]
    log: str
    groups: int
    seed: int
    running: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)

    def start(self, slot: int) -> None:
        """Start a process."""
        number = self.started.get(slot, 0)
        self.started[slot] = number + 1
        own = tuple(roles(slot, number, self.log, self.groups))
        spec = Spec(self.urls[slot], own, self.seed * 1000 + number)
        name = f"clients-{slot + 1}.{number}"
        line = [sys.executable, "-m", "bench.brokers.groups.member", str(self.folder / f"{name}.journal")]
        with (self.folder / f"{name}.words").open("wb") as words:
            self.running[slot] = subprocess.Popen(
                [*line, spec.text], cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=words, stderr=words
            )

    def kill(self, slot: int) -> None:
        """SIGKILL; no process is left."""
        process = self.running.pop(slot)
        process.kill()
        process.wait()

    def signal(self, slot: int, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT."""
        self.running[slot].send_signal(number)

    def stop(self, slot: int) -> str:
        """SIGTERM; what was wrong with its end, or nothing."""
        process = self.running.pop(slot)
        process.terminate()
        try:
            status = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"clients {slot + 1} did not end within {_END_S:.0f} s after SIGTERM"
        # A process that has just started has no handler yet.
        return f"clients {slot + 1} ended with status {status}" if status not in {0, -signal.SIGTERM} else ""

    def end(self) -> None:
        """Kill all."""
        for slot in list(self.running):
            self.kill(slot)

    def words(self) -> Mapping[str, str]:
        """What the processes printed."""
        return {path.stem: path.read_text(errors="replace") for path in self.folder.glob("clients-*.words")}

    def journals(self) -> Journals:
        """What all of them wrote."""
        found = Journals()
        for path in sorted(self.folder.glob("clients-*.journal")):
            with path.open() as lines:
                found.add(lines)
        return found
