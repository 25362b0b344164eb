"""What stands still and goes on in a simulated cluster: processes that are stopped, brokers that are away."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol


class Schedule(Protocol):
    """The simulated time, in milliseconds."""

    @property
    def now(self) -> float: ...

    def after(self, ms: float, act: Callable[[], object]) -> object: ...


class World(Protocol):
    @property
    def schedule(self) -> Any: ...

    @property
    def random(self) -> Random: ...


class StoppableProcess:
    """A process that can be stopped: what comes meanwhile is done when it continues."""

    def __init__(self, world: World) -> None:
        self._clock: Schedule = world.schedule
        self._chance = world.random
        self.alive = True
        self.stopped_until = 0.0
        self.inbox: list[Callable[[], object]] = []

    @property
    def stopped(self) -> bool:
        return self._clock.now < self.stopped_until

    def do(self, act: Callable[[], object]) -> None:
        """Run this in the process: now, or when it continues."""
        if not self.alive:
            return
        if self.stopped:
            self.inbox.append(act)
            return
        act()
        self._perform()

    def after(self, ms: float, act: Callable[[], object]) -> None:
        self._clock.after(ms, lambda: self.do(act))

    def every(self, ms: float, act: Callable[[], object]) -> None:
        def turn() -> None:
            if self.alive:
                # A timer that was due several times while the process was stopped fires once.
                if not self.stopped:
                    self.do(act)
                self._clock.after(ms, turn)

        self._clock.after(self._chance.uniform(0, ms), turn)

    def stop(self, ms: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.alive and not self.stopped:
            self.stopped_until = self._clock.now + ms
            self._clock.after(ms, self._continue)

    def wake(self) -> None:
        """SIGCONT now."""
        self.stopped_until = self._clock.now
        self._continue()

    def _continue(self) -> None:
        if not self.stopped:
            inbox, self.inbox = self.inbox, []
            for act in inbox:
                self.do(act)

    def _perform(self) -> None:
        """Carry out what the process has decided."""
        raise AssertionError("a process performs its effects")


class AwayBrokers:
    """Brokers that answer nothing until `away_until`: requests wait."""

    def __init__(self, schedule: Schedule) -> None:
        self._clock = schedule
        self.away_until = 0.0
        self._waiting: list[Callable[[], object]] = []

    def ask(self, act: Callable[[], object]) -> None:
        """Carry out a request that has come, when the brokers answer."""
        if self.away_until > self._clock.now:
            self._waiting.append(act)
        else:
            act()

    def _answer(self) -> None:
        if self.away_until <= self._clock.now:
            waiting, self._waiting = self._waiting, []
            for act in waiting:
                act()
