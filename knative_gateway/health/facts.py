"""What the processes of a gateway know about it, and how it travels between them. Pure.

A gateway has one process, or a parent and several workers. `About` is what the first process knows, `Vitals`
what each process that serves knows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from service_parts.health.changes import CHANGES_MAX, Change, Changes
from service_parts.settings.in_force import SettingsInForce
from service_parts.settings.showing import InForce

DESCRIPTORS: Final = "descriptors"
"""The only limit that each process has for itself: the others are shares of the limits of the gateway."""


class Use(NamedTuple):
    """How much of a limit is in use. `limit`: None: it has no end."""

    used: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Vitals:
    """One process that serves, at one moment.

    `worker`: its number. `not_ready`: why it does not serve; None: it does. `memory`: resident bytes.
    `unstored_s`: seconds since positions were stored. `changes`: what users changed through it.
    """

    worker: int
    pid: int
    leads: bool
    not_ready: str | None
    memory: int | None
    uses: Mapping[str, Use]
    unstored_s: float | None = None
    changes: Sequence[Change] = ()


@dataclass(slots=True)
class About:
    """What the first process of a gateway knows.

    `started_ms`: since 1970. `changes`: reloads. `reload_failed`: why the last one changed nothing.
    `restart_needed`: changed settings that are not in force.
    """

    started_ms: int
    settings: SettingsInForce
    changes: Changes
    reload_failed: str | None = None
    restart_needed: Sequence[str] = ()

    def reloaded(self, restart_needed: Sequence[str]) -> None:
        """A reload was successful."""
        self.settings.reload()
        self.reload_failed = None
        self.restart_needed = tuple(restart_needed)
        self.changes.add(None, "RELOAD", "gateway")

    def not_reloaded(self, reason: str) -> None:
        """A reload changed nothing."""
        self.reload_failed = reason

    def known(
        self, *, memory: int | None = None, node_starts: int | None = None, restarts: int = 0
    ) -> "Known":
        """Return a copy, with what else is known now."""
        return Known(
            self.started_ms,
            tuple(self.settings.rows),
            self.reload_failed,
            tuple(self.restart_needed),
            memory,
            node_starts,
            restarts,
            self.changes.latest(),
        )


@dataclass(frozen=True, slots=True)
class Known:
    """`About` at one moment. `memory`: of the parent process. `node_starts`: of the embedded node.

    `restarts`: how often a worker was started again.
    """

    started_ms: int
    settings: Sequence[InForce]
    reload_failed: str | None = None
    restart_needed: Sequence[str] = ()
    memory: int | None = None
    node_starts: int | None = None
    restarts: int = 0
    changes: Sequence[Change] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """A gateway at one moment. `silent`: numbers of workers that did not answer in time."""

    known: Known
    vitals: Sequence[Vitals]
    silent: Sequence[int] = ()

    @property
    def memory(self) -> int | None:
        """The resident bytes of all processes; None if the system does not say."""
        parts = [self.known.memory, *(each.memory for each in self.vitals)]
        found = [part for part in parts if part is not None]
        return sum(found) if found else None

    @property
    def uses(self) -> dict[str, Use]:
        """How much of each limit of the gateway is in use; of descriptors, the process that has most."""
        found: dict[str, Use] = {}
        for name in dict.fromkeys(name for each in self.vitals for name in each.uses):
            uses = [each.uses[name] for each in self.vitals if name in each.uses]
            found[name] = max(uses, key=lambda use: use.used) if name == DESCRIPTORS else _sum(uses)
        return found

    @property
    def changes(self) -> list[Change]:
        """The latest changes, newest first."""
        every = [*self.known.changes, *(change for each in self.vitals for change in each.changes)]
        return sorted(every, key=lambda change: -change.at_ms)[:CHANGES_MAX]

    @property
    def unstored_s(self) -> float | None:
        """The longest time since positions were stored."""
        return max((each.unstored_s for each in self.vitals if each.unstored_s is not None), default=None)


def _sum(uses: Iterable[Use]) -> Use:
    used, limit = 0, 0
    for use in uses:
        used, limit = used + use.used, limit + (use.limit or 0)
    return Use(used, limit or None)


def packed(part: Known | Vitals) -> bytes:
    """Return a part as one process sends it to another."""
    return json.dumps(asdict(part), separators=(",", ":"), default=str).encode()


def unpacked_known(data: bytes) -> Known:
    """Return what `packed` has written. Both processes are of one version."""
    found = Known(**json.loads(data))
    read: Iterable[Any] = found.settings
    rows = tuple(InForce(**row) for row in read)
    return replace(found, settings=rows, changes=_changes(found.changes))


def unpacked_vitals(data: bytes) -> Vitals:
    """Return what `packed` has written."""
    found = Vitals(**json.loads(data))
    uses = {name: Use(*use) for name, use in found.uses.items()}
    return replace(found, uses=uses, changes=_changes(found.changes))


def _changes(rows: Iterable[Any]) -> tuple[Change, ...]:
    return tuple(Change(**row) for row in rows)
