"""[io] Carries out the changes that other nodes ask for, at the homes that are here.

Laws: the work is done in `Turns`, as that of `$management`. A change that has begun is completed, also if the
node that asked is gone. A node that asks for too much is refused, and costs the others nothing.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from amqp_streams.homes.changing.changes import OutcomeSteps
from amqp_streams.homes.messages import Asked, Outcome
from amqp_streams.server.links.turns import Turns
from amqp_streams.streams import management

RUNNING_MAX: Final = 256
"""Changes of all nodes that are carried out or wait."""
RUNNING_A_NODE_MAX: Final = 32
"""Of one node: it has no more questions for a home (`OPEN_A_HOME_MAX`)."""

log = structlog.get_logger("amqp_streams.server")

Send = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class Nobody:
    """No connection pays: a failure is caught before."""

    def cut(self, reason: str) -> None:
        """End nothing."""


@dataclass(slots=True, eq=False)
class _Running:
    """One change."""

    name: str
    asked: Asked
    steps: OutcomeSteps
    send: Send
    turns: Turns
    owner: Nobody

    def work(self) -> bool:
        """Do one step. See `turns.Worker`."""
        try:
            wait = next(self.steps)
        except StopIteration as ended:
            result: Outcome = ended.value
            self.send(result)
            return False
        except Exception as error:
            log.exception("change_failed", node=self.name, bucket=self.asked.bucket)
            words = f"the node that decides about this failed: {type(error).__name__}"
            self.send(Outcome(self.asked.number, management.SERVER_ERROR, words))
            return False
        if wait is None or wait.over:
            return True
        wait.then(partial(self.turns.add, self))
        return False


class Answering:
    """`carry_out`: see `Changes.carry_out`."""

    def __init__(self, carry_out: Callable[[Asked], OutcomeSteps], turns: Turns) -> None:
        self._carry_out: Final = carry_out
        self._turns: Final = turns
        self._running: Final[Counter[str]] = Counter()
        self.outcomes: Final[Counter[int]] = Counter()
        """How many changes ended, by status."""

    @property
    def running(self) -> int:
        """How many changes are carried out or wait."""
        return self._running.total()

    def begin(self, process: str, asked: Asked, send: Send) -> None:
        """This process asks for a change. `send`: sends the outcome."""
        if self._running[process] >= RUNNING_A_NODE_MAX or self._running.total() >= RUNNING_MAX:
            words = "too many changes wait at the node that decides about this: send the request again later"
            send(Outcome(asked.number, management.UNAVAILABLE, words))
            return
        self._running[process] += 1
        answered = partial(self._ended, process, send)
        self._turns.add(_Running(process, asked, self._carry_out(asked), answered, self._turns, Nobody()))

    def _ended(self, process: str, send: Send, result: Outcome) -> None:
        self._running[process] -= 1
        if not self._running[process]:
            del self._running[process]
        self.outcomes[result.status] += 1
        send(result)
