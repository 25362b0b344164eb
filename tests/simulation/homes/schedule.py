"""The order of simulated actions in true time, and what may be wrong between two machines."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random


class Schedule:
    """Actions at true times. Actions of one time run in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, ms: float, act: Callable[[], object]) -> None:
        """Do this so much later."""
        heappush(self._due, (self.now + ms, next(self._numbers), act))

    def run(self, until: float) -> None:
        """Advance the time."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, act = heappop(due)
            act()
        self.now = until


class Network:
    """Messages between machines: late, lost, doubled, in any order. Kafka is the machine "kafka".

    `cuts`: pairs that do not hear each other, in one direction. A message that is cut off is lost, or, if the
    connection is half-open, comes when the cut ends.
    """

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self.schedule = schedule
        self.random = random
        self.cuts: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], list[Callable[[], object]]] = {}
        self.lags: dict[tuple[str, str], tuple[float, float]] = {}
        """By direction, how long messages take, and until when."""
        self.slow = 0.0
        """How many of the messages take long."""
        self.lossy = 0.0

    def cut(self, source: str, target: str, ms: float) -> None:
        """Cut one direction for a while."""
        self.cuts[source, target] = max(self.cuts.get((source, target), 0.0), self.schedule.now + ms)
        self.schedule.after(ms, lambda: self._release(source, target))

    def lag(self, source: str, target: str, lag: float, ms: float) -> None:
        """Delay all messages of one direction for a while."""
        self.lags[source, target] = lag, self.schedule.now + ms

    def heal(self) -> None:
        """End all faults. What is in flight may still be late."""
        self.cuts.clear()
        self.lags.clear()
        self.slow = self.lossy = 0.0
        for source, target in list(self._held):
            self._release(source, target)

    def _release(self, source: str, target: str) -> None:
        if not self.is_cut(source, target):
            for act in self._held.pop((source, target), ()):
                self.schedule.after(self.random.uniform(0.2, 20.0), act)

    def is_cut(self, source: str, target: str) -> bool:
        return source != target and self.cuts.get((source, target), 0.0) > self.schedule.now

    def send(self, source: str, target: str, act: Callable[[], object], *, doubles: bool = False) -> None:
        """Carry a message. `doubles`: it may come twice, as two connections may carry it."""
        random = self.random
        delay = 0.05 if source == target else random.uniform(0.2, 2.0)
        if source != target:
            lag, until = self.lags.get((source, target), (0.0, 0.0))
            if until > self.schedule.now:
                delay += lag
            if self.slow and random.random() < self.slow:
                delay = random.choice((30.0, 300.0, 1500.0, 3500.0)) * random.random()
            if self.lossy and random.random() < self.lossy:
                return
            if self.is_cut(source, target):
                if random.random() < 0.3:
                    self._held.setdefault((source, target), []).append(act)
                return
            if doubles and self.lossy and random.random() < 0.1:
                self.schedule.after(delay * random.uniform(1, 50), act)
        self.schedule.after(delay, act)
