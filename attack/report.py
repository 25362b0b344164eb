"""What an attack is, what came of it, and the table of all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from attack.disk import DISK, RATIO_MAX, is_slower
from attack.load import FOREIGN_MAX
from attack.neighbour import Measured

if TYPE_CHECKING:
    from attack.room import Room


SHOWN_BUSY_S: Final = 1.0


class Table(StrEnum):
    """The six tables."""

    PRODUCTS = "products"
    RESOURCES = "resources"
    ACCESS = "access"
    TIMERS = "timers"
    LISTENERS = "listeners"
    REMOTES = "remotes"


class Place(StrEnum):
    """What an attack is run against."""

    NODE = "node"
    GATEWAY = "gateway"
    GATEWAY_TLS = "gateway with HTTPS"
    KAFKA = "nodes on Kafka"


class BrokenError(Exception):
    """A promise was not kept; the text says which."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `covers`: entries of the inventory. `limit`: what bounds it, in words.

    `run` brings the attacker to the limit, yields what the attacker got, holds the limit until it is resumed,
    then gives everything back and checks that it is given back. `is_judged`: the p99 of the neighbour is; not
    where the attack stops the process itself. `is_patient`: it waits for a time limit of the product most of
    the time and disturbs no other attack, so the short form runs all of these at once.
    """

    name: str
    table: Table
    place: Place
    covers: frozenset[str]
    limit: str
    run: "Callable[[Room], Iterator[str]]"
    is_judged: bool = True
    is_long: bool = False
    is_patient: bool = False


def node_attack(
    name: str,
    limit: str,
    run: "Callable[[Room], Iterator[str]]",
    *covers: str,
    table: Table = Table.RESOURCES,
) -> Attack:
    """An attack on a node. Without `covers`, it covers the setting `limit`."""
    entries = frozenset(covers or {f"node limits: {limit.removeprefix('limits.')}"})
    return Attack(name, table, Place.NODE, entries, limit, run)


@dataclass(frozen=True, slots=True)
class Found:
    """One row."""

    attack: str
    table: str
    limit: str
    got: str
    before_ms: Mapping[str, float]
    during_ms: Mapping[str, float]
    complaints: tuple[str, ...] = ()
    covers: tuple[str, ...] = field(default=())
    cpu_s: float = 0.0
    """Of the product, while the attack went on."""
    foreign: float | None = None
    """The share of all CPUs that other programs used; None: no time of this attack is judged."""
    disk_paused: bool = False
    """The disk was slower by itself in one of the two measurements."""
    busy_s: float = 0.0
    """How long the product was busy with the attacks before. This attack waited as long."""
    is_calm: bool = True
    """It was calm when the measurements began."""

    @property
    def verdict(self) -> str:
        """`held`, `BROKEN`, or `not judged`.

        Not judged: nothing else is broken, and the machine was too busy for times, its disk paused, or the
        product was not calm at the beginning.
        """
        if self.complaints:
            return "BROKEN"
        is_fair = self.is_calm and not self.disk_paused and is_quiet(self.foreign or 0.0)
        return "held" if is_fair else "not judged"

    @property
    def ratio(self) -> float:
        """The largest of the kinds of round trips; 0: not measured."""
        ratios = [
            self.during_ms[name] / before
            for name, before in self.before_ms.items()
            if before and name in self.during_ms and name != DISK
        ]
        return max(ratios, default=0.0)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "ratio": round(self.ratio, 2), "verdict": self.verdict}


def is_quiet(foreign: float) -> bool:
    """Whether times mean something beside this share of other programs."""
    return foreign <= FOREIGN_MAX


def judged(before: Mapping[str, Measured], during: Mapping[str, Measured], *, is_timed: bool) -> list[str]:
    """What the neighbour suffered, in words. `is_timed`: the p99 counts too."""
    complaints = []
    for name, each in during.items():
        if name == DISK:
            continue
        complaints += (
            [f"{len(each.errors)} {name} errors of the neighbour: {each.errors[0]}"] if each.errors else []
        )
        if not is_timed or name not in before or not before[name].ms:
            continue
        earlier, later = before[name].p99, each.p99
        if is_slower(earlier, later):
            complaints.append(
                f"{name} p99 of the neighbour {earlier:.1f} ms > {later:.1f} ms, more than "
                f"{RATIO_MAX:g} times"
            )
    return complaints


_HEAD: Final = (
    f"{'table':<10} {'attack':<58} {'limit':<44} {'neighbour p99 ms before > during':<40} "
    f"{'ratio':>6}  verdict"
)


def table(rows: Iterable[Found]) -> str:
    """For people: a line for each attack, and below it what the attacker got."""
    lines = [_HEAD]
    for row in rows:
        p99 = ", ".join(
            f"{name} {before:.1f} > {row.during_ms.get(name, float('nan')):.1f}"
            for name, before in row.before_ms.items()
        )
        ratio = f"{row.ratio:.2f}" if row.ratio else ""
        lines.append(f"{row.table:<10} {row.attack:<58} {row.limit:<44} {p99:<40} {ratio:>6}  {row.verdict}")
        lines.append(f"           got: {row.got}")
        if not is_quiet(row.foreign or 0.0):
            lines.append(f"           other programs used {row.foreign:.0%} of the CPUs")
        if row.busy_s >= SHOWN_BUSY_S:
            end = "" if row.is_calm else ", and did not become calm"
            lines.append(
                f"           the product was busy for {row.busy_s:.0f} s after the attacks before{end}"
            )
        if row.disk_paused:
            lines.append("           the disk was slower by itself in one of the measurements")
        lines += [f"           {complaint}" for complaint in row.complaints]
    return "\n".join(lines)


def expect(holds: object, words: str) -> None:
    """Raises BrokenError."""
    if not holds:
        raise BrokenError(words)
