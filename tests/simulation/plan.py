"""What a seed decides first: the size of its world, its settings, and which misfortunes there are.

Most worlds are small. A small world costs a fraction of a large one, and most faults need few clients, few
partitions and few events to show.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from amqp_streams.config import GroupSettings, Limits, LogSettings, NodeSettings
from amqp_streams.log_settings import Compression
from amqp_streams.policy import Quota
from tests.simulation.machine.schedule import SECOND
from tests.simulation.peers.compressing import CODECS

KINDS: Final = ("abusers", "disk", "crash", "power", "clock", "network", "clients", "restart")
"""Of misfortunes."""
LIMITED_USER: Final = "user-limited"
"""A user with a quota."""
STALLS_US: Final = 6 * SECOND
"""How long a storm with stalls of the disk lasts at least."""
_LARGE_SHARE: Final = 0.12
_COUNTED_SHARE: Final = 0.03
_ROTTEN_SHARE: Final = 0.2
_CROWDED_SHARE: Final = 0.02
_BATCHES_SHARE: Final = 0.25
_FORGETS_SHARE: Final = 0.3
_COMPRESSES_SHARE: Final = 0.5
_RECREATES_SEEDS: Final = (4, 12)
_LOGINS_SEEDS: Final = (1, 7)
_SEEDS: Final = 15
_STALLS_SEEDS: Final = (15, 19)
_BREAKS_SEEDS: Final = (13, 17)
_DISK_SEEDS: Final = 20
_STORED_COMPRESSED: Final = frozenset({1, 2, 4, 5, 11, 12, 16, 17, 18, 19, 20, 21, 22, 24, 26})
_COMPRESSED_SEEDS: Final = 27
"""These five are chosen by the remainder of the seed: no seed that failed before they existed has one of
them, so each of these seeds is still the run that failed.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """At most so many of everything. `storm_us`: how long things go wrong. `strike_ms`: how often."""

    partitions: tuple[int, ...]
    producers: int
    consumers: int
    groups: int
    members: int
    abusers: int
    events: int
    burst: tuple[int, ...]
    """How many events a producer gets at once."""
    start_ms: int
    storm_us: int
    strike_ms: tuple[int, ...]
    kinds: float
    """The chance of each kind of misfortune."""


LARGE: Final = Size(
    partitions=(1, 2, 3, 4, 8),
    producers=4,
    consumers=4,
    groups=2,
    members=5,
    abusers=3,
    events=200,
    burst=(1, 1, 2, 5, 20),
    start_ms=2000,
    storm_us=12 * SECOND,
    strike_ms=(300, 1000),
    kinds=0.45,
)


def _small(random: Random) -> Size:
    return Size(
        partitions=random.choice(((1,), (1, 2))),
        producers=random.choice((1, 1, 2)),
        consumers=random.choice((1, 1, 2)),
        groups=random.choice((0, 0, 1)),
        members=random.choice((1, 2, 3)),
        abusers=1,
        events=random.choice((5, 20, 50)),
        storm_us=random.choice((1, 2, 4)) * SECOND,
        start_ms=300,
        strike_ms=(50, 200, 500),
        burst=(1, 2, 5, 20),
        kinds=0.3,
    )


@dataclass
class Plan:
    """The plan of a run."""

    random: Random
    extras: Random
    """Decides about what few worlds have, so that the others do not depend on it."""
    seed: int
    faults: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        random = self.random
        self.large = random.random() < _LARGE_SHARE
        self.size = LARGE if self.large else _small(random)
        self.faults |= {kind for kind in KINDS if random.random() < self.size.kinds}
        self.crowded = random.random() < _CROWDED_SHARE
        """The node keeps one cursor only, many want one, and nothing else goes wrong."""
        self.counted = random.random() < _COUNTED_SHARE
        self.rots = random.random() < _ROTTEN_SHARE
        """In the end bits flip on the disk."""
        partitions = self.size.partitions
        self.logs = {
            "first": LogSettings(
                partitions=random.choice(partitions), segment_bytes=64 << 10, segment_ms=10_000
            ),
        }
        if self.large or random.random() < 0.3:
            self.logs["second"] = LogSettings(partitions=random.choice(partitions))
        if random.random() < (0.4 if self.large else 0.2):
            self.logs["short"] = LogSettings(
                partitions=random.choice((1, 2)), segment_ms=1000, retention_ms=random.choice((2000, 8000))
            )
        self.batches = self.extras.random() < _BATCHES_SHARE
        """Producers send batches."""
        self.forgets = self.extras.random() < _FORGETS_SHARE
        """Clients end their subscriptions, and begin again."""
        self.compresses = self.extras.random() < _COMPRESSES_SHARE
        """Batches are compressed."""
        if self.seed % _COMPRESSED_SEEDS in _STORED_COMPRESSED:
            # Closed segments are compressed on the disk. Retention closes them, and removes few of them.
            change = {"compression": Compression(CODECS[self.seed % 2]), "segment_ms": 1000}
            self.logs = {
                name: log.model_copy(update={"retention_ms": log.retention_ms or 600_000, **change})
                for name, log in self.logs.items()
            }
        self.recreated = (
            LogSettings(partitions=self.extras.choice((1, 3)))
            if self.seed % _SEEDS in _RECREATES_SEEDS and not self.crowded
            else None
        )
        """A log that a client deletes and creates again."""
        self.logins = self.seed % _SEEDS in _LOGINS_SEEDS and not self.crowded
        """Clients log in, rights and users are taken away for a time, and some clients have no rights."""
        remainder = self.seed % _DISK_SEEDS
        self.stalls = remainder in _STALLS_SEEDS and not self.crowded
        """The disk stalls for longer than a client may be silent, while producers send."""
        self.breaks = remainder in _BREAKS_SEEDS and not self.crowded
        """Writes to the journal fail again and again, while producers send."""
        if self.stalls:
            self.size = replace(self.size, storm_us=max(self.size.storm_us, STALLS_US))
        if self.crowded:
            self.faults.clear()
            self.logs["lone"] = LogSettings(partitions=1)

    def settings(self) -> NodeSettings:
        random = self.random
        credit = random.choice((1, 5, 40, 2000))
        limits = Limits(
            unsettled=credit if random.random() < 0.4 else random.choice((4, 30, 8192)),
            credit=credit,
            pending_bytes=1 << 20,
            message_bytes=64 << 10,
            frame_bytes=random.choice((512, 4096, 64 << 10)),
            connection_pending_bytes=64 << 10,
            unauthenticated_ms=2000,
            idle_timeout_ms=random.choice((2000, 4000, 20_000)),
            drain_ms=random.choice((0, 1000, 5000)),
        )
        groups = GroupSettings(
            wait_ms=random.choice((0, 2000, 30_000)),
            pause_ms=random.choice((200, 1000, 3000)),
            handover_ms=random.choice((500, 10_000)),
            cursor_flush_ms=random.choice((20, 200)),
        )
        # Smaller than an operator may set: a few events fill it.
        limits = limits.model_copy(update={"pending_bytes": random.choice((1000, 4000, 256 << 10))})
        if self.stalls:
            # Few events fill what may wait for the disk, and the node pauses their clients.
            window = {"credit": max(credit, 40), "unsettled": max(limits.unsettled, 40)}
            limits = limits.model_copy(update={"pending_bytes": 200, "idle_timeout_ms": 2000, **window})
        if self.crowded:
            limits = limits.model_copy(update={"cursors": 1, "unsettled": 8192})
            groups = groups.model_copy(update={"wait_ms": 30_000})
        quota = Quota(bytes_in=random.choice((5000, 50_000)), bytes_out=random.choice((20_000, 200_000)))
        return NodeSettings(
            data_dir=Path("/data"),
            listen=(),
            limits=limits,
            groups=groups,
            logs=self.logs,
            quotas={LIMITED_USER: quota},
        )

    def codec(self) -> str | None:
        """The compression of a client that sends or reads batches."""
        return self.extras.choice((*CODECS, None)) if self.compresses else None

    def user(self) -> str | None:
        """The user of a client that behaves well: mostly anonymous."""
        return LIMITED_USER if self.random.random() < 0.25 else None
