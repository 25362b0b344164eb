"""[io] Describes groups and cursors for other nodes, as far as their homes are here.

Laws: the work is done in `Turns`, as that of `$management`, so reports of nodes are served in between. A node
that inquires too much gets empty descriptions, and costs the others nothing.
"""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from amqp_streams.homes.messages import Description, Inquiry
from amqp_streams.server.homes.answering import Nobody
from amqp_streams.server.links.turns import Turns

RUNNING_MAX: Final = 64
"""Inquiries of all nodes that are worked on."""
RUNNING_A_NODE_MAX: Final = 4
"""Of one node: it has no more inquiries to one address (`OPEN_A_HOME_MAX`)."""
OUTCOMES: Final = ("described", "failed", "refused")

log = structlog.get_logger("amqp_streams.server")

Send = Callable[[Description], None]


@dataclass(slots=True, eq=False)
class _Running:
    """One inquiry."""

    name: str
    number: int
    steps: Generator[None, None, Description]
    end: Callable[[Description, str], None]
    owner: Nobody

    def work(self) -> bool:
        """Do one step. See `turns.Worker`."""
        try:
            next(self.steps)
        except StopIteration as ended:
            result: Description = ended.value
            self.end(result, "described")
            return False
        except Exception:
            log.exception("description_failed", node=self.name)
            self.end(Description(self.number), "failed")
            return False
        return True


class Describing:
    """`describe`: see `description`."""

    def __init__(
        self, describe: Callable[[Inquiry], Generator[None, None, Description]], turns: Turns
    ) -> None:
        self._describe: Final = describe
        self._turns: Final = turns
        self._running: Final[Counter[str]] = Counter()
        self.outcomes: Final = dict.fromkeys(OUTCOMES, 0)
        """How many inquiries ended, by outcome."""

    @property
    def running(self) -> int:
        """How many inquiries are worked on."""
        return self._running.total()

    def begin(self, process: str, inquiry: Inquiry, send: Send) -> None:
        """This process inquires. `send`: sends the description."""
        if self._running[process] >= RUNNING_A_NODE_MAX or self.running >= RUNNING_MAX:
            self.outcomes["refused"] += 1
            # The node asks again later.
            send(Description(inquiry.number))
            return
        self._running[process] += 1
        end = partial(self._ended, process, send)
        self._turns.add(_Running(process, inquiry.number, self._describe(inquiry), end, Nobody()))

    def _ended(self, process: str, send: Send, result: Description, outcome: str) -> None:
        self._running[process] -= 1
        if not self._running[process]:
            del self._running[process]
        self.outcomes[outcome] += 1
        send(result)
