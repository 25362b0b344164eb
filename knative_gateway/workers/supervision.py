"""Which workers run, which of them leads, and when a worker that ended is started again. Pure.

Inputs are the reports of workers, their ends, and the time; the results are what the parent must do.

Laws: at most one worker leads, and it runs. Another worker leads only after the leader has ended. The pause
before a restart never decreases while a worker keeps ending early, and it has a bound.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds.

    - `pause`: the pause before the first restart. It doubles each time the worker ends early.
    - `pause_max`: the longest pause.
    - `stable`: a worker that has run this long is restarted after the first pause again.
    - `late`: with a worker that has not reported for this time, the gateway is not ready.
    - `hung`: a worker that has not reported for this time is killed.
    - `begin`: the same for a worker that starts: many workers that start at once share the cores.
    - `silent`: with a worker that has not reported for this time, and that still runs, the gateway is not
      healthy.
    - `gap`: after this time without an input, the parent itself was stopped, for example with the machine.
      That time does not count: the reports of the workers have not been read yet.
    """

    pause: float = 0.1
    pause_max: float = 30.0
    stable: float = 10.0
    late: float = 5.0
    hung: float = 20.0
    begin: float = 60.0
    silent: float = 75.0
    gap: float = 5.0


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker. `leads`: it is the leader from its beginning."""

    worker: int
    leads: bool


@dataclass(frozen=True, slots=True)
class Lead:
    """Tell a running worker that it leads from now on."""

    worker: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a worker that does not report."""

    worker: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop: no worker can start with these settings. `status`: the exit status of the first worker;
    `reason`: the error, if the worker reported it.
    """

    status: int
    reason: str | None = None


Effect = Start | Lead | Kill | GiveUp


class Phase(Enum):
    """Where a worker is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    KILLED = "killed"


@dataclass(slots=True)
class _Worker:
    phase: Phase = Phase.WAITING
    due_s: float | None = None
    """When the worker is started. None: after the first worker has started."""
    starts: int = 0
    since_s: float = 0.0
    heard_s: float = 0.0
    pause_s: float = 0.0
    problem: str | None = "it has not started yet"
    failure: str | None = None
    """Why the last start failed; None after a start without an error."""


class Supervision:
    """The states of all workers. `workers`: how many there are."""

    def __init__(self, workers: int, times: Times | None = None) -> None:
        self.leader: int | None = None
        self._times: Final = times or Times()
        self._workers: Final = [_Worker(pause_s=self._times.pause) for _ in range(workers)]
        self._now_s: float | None = None
        self._began = False
        """Whether a worker has started successfully since the gateway was started."""

    # -- inputs

    def begin(self, now_s: float) -> Sequence[Effect]:
        """Start the first worker. The others follow when it is up, so that an error is reported once."""
        self._workers[0].due_s = now_s
        return self.tick(now_s)

    def reported(self, worker: int, problem: str | None, *, up: bool, now_s: float) -> Sequence[Effect]:
        """Take the report of a worker: why it is not ready, and whether all of its parts have started."""
        self._note(now_s)
        one = self._workers[worker]
        if one.phase not in {Phase.STARTING, Phase.UP}:
            return []
        one.heard_s, one.problem = now_s, problem
        if up and one.phase is Phase.STARTING:
            one.phase, one.failure = Phase.UP, None
            self._begin_others(now_s)
        return [*self._lead(), *self.tick(now_s)]

    def failed(self, worker: int, reason: str, now_s: float) -> None:
        """Take the error with which a worker did not start. Its end follows."""
        self._note(now_s)
        self._workers[worker].failure = reason

    def ended(self, worker: int, status: int, now_s: float) -> Sequence[Effect]:
        """Take the end of a worker. `status` is negative if a signal ended it."""
        self._note(now_s)
        one = self._workers[worker]
        if self.leader == worker:
            self.leader = None
        # An exit status, and not a signal: the same settings would fail again.
        if not self._began and status > 0:
            return [GiveUp(status, one.failure)]
        if now_s - one.since_s >= self._times.stable:
            one.pause_s = self._times.pause
        one.phase, one.due_s = Phase.WAITING, now_s + one.pause_s
        what = f"it ended with status {status}" if one.failure is None else f"it did not start: {one.failure}"
        one.problem = f"{what}; it is started again after {one.pause_s:.1f} s"
        one.pause_s = min(2 * one.pause_s, self._times.pause_max)
        return self._lead()

    def tick(self, now_s: float) -> Sequence[Effect]:
        """Start the workers that are due, and kill those that do not report. At least once a second."""
        self._note(now_s)
        return [*self._due(now_s), *self._hung(now_s)]

    # -- what is known

    @property
    def restarts(self) -> Sequence[int]:
        """How often each worker was started again."""
        return [max(0, one.starts - 1) for one in self._workers]

    @property
    def next_s(self) -> float | None:
        """When `tick` must be called; None: after the next input."""
        return min((at for one in self._workers if (at := self._at(one)) is not None), default=None)

    def problem(self, now_s: float) -> str | None:
        """Return why the gateway is not ready; None if all workers are ready and report."""
        return self._first(lambda one: one.problem or self._silence(one, now_s, self._times.late))

    def late(self, now_s: float) -> Collection[int]:
        """Return the workers that have not reported for a while."""
        found = enumerate(self._silence(one, now_s, self._times.late) for one in self._workers)
        return {number for number, words in found if words is not None}

    @property
    def running(self) -> int:
        """How many workers run."""
        return sum(one.phase is not Phase.WAITING for one in self._workers)

    def trouble(self, now_s: float) -> str | None:
        """Return which worker has not reported for so long that killing it did not help; None if none."""
        return self._first(lambda one: self._silence(one, now_s, self._times.silent))

    # -- decisions

    def _note(self, now_s: float) -> None:
        before_s, self._now_s = self._now_s, now_s
        if before_s is not None and now_s - before_s >= self._times.gap:
            for one in self._workers:
                one.heard_s += now_s - before_s

    def _begin_others(self, now_s: float) -> None:
        if not self._began:
            self._began = True
            for one in self._workers:
                if one.phase is Phase.WAITING and one.due_s is None:
                    one.due_s = now_s

    def _lead(self) -> Sequence[Effect]:
        """Choose a leader if none leads: the first worker that is up."""
        if self.leader is not None:
            return []
        candidates = (number for number, one in enumerate(self._workers) if one.phase is Phase.UP)
        self.leader = next(candidates, None)
        return [] if self.leader is None else [Lead(self.leader)]

    def _due(self, now_s: float) -> Iterator[Effect]:
        for number, one in enumerate(self._workers):
            if one.phase is Phase.WAITING and one.due_s is not None and one.due_s <= now_s:
                one.starts += 1
                one.phase, one.since_s, one.heard_s = Phase.STARTING, now_s, now_s
                one.problem = (
                    "it is starting" if one.failure is None else f"it is starting again after: {one.failure}"
                )
                # Only the first worker at all: later, a worker that is up leads sooner than one that starts.
                leads = not self._began and self.leader is None
                self.leader = number if leads else self.leader
                yield Start(number, leads)

    def _hung(self, now_s: float) -> Iterator[Effect]:
        for number, one in enumerate(self._workers):
            if one.phase in {Phase.STARTING, Phase.UP} and now_s - one.heard_s >= self._patience(one):
                one.phase = Phase.KILLED
                yield Kill(number)

    def _at(self, one: _Worker) -> float | None:
        if one.phase is Phase.WAITING:
            return one.due_s
        return None if one.phase is Phase.KILLED else one.heard_s + self._patience(one)

    def _patience(self, one: _Worker) -> float:
        return self._times.begin if one.phase is Phase.STARTING else self._times.hung

    def _silence(self, one: _Worker, now_s: float, after_s: float) -> str | None:
        silent_s = now_s - one.heard_s
        if one.phase is Phase.WAITING or silent_s < after_s:
            return None
        return f"it has not answered for {silent_s:.0f} s"

    def _first(self, of: Callable[[_Worker], str | None]) -> str | None:
        found = ((number, of(one)) for number, one in enumerate(self._workers))
        return next((f"worker {number}: {words}" for number, words in found if words is not None), None)
