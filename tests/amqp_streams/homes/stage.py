"""A home that serves, and a node with links, joined by hand: for the tests of this folder."""

from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Answer, Ends, Owns, Report, Reported, Stored
from amqp_streams.homes.serving import Serving
from amqp_streams.homes.states import BucketStates
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import Claim, Wanted
from amqp_streams.testing import MemoryStore

TIMES = Times()
SETTINGS = GroupSettings(wait_ms=5000, pause_ms=1000)
LIMITS = Limits()
LOG: StoredLog = MemoryStore().create("log", LogSettings(partitions=2), incarnation="i")


def log_of(incarnation: str) -> StoredLog | None:
    return LOG if incarnation == "i" else None


def wanted(
    member: str, partition: int | None = None, epoch: int | None = None, *, durable: bool = True
) -> Wanted:
    """A link in the group `g`."""
    return Wanted("i", "user", member, "link", Claim("g", partition, epoch, member), durable, (0, 0))


def own_cursor(container: str) -> Wanted:
    """A durable link without a group."""
    return Wanted("i", "user", container, "link", None, True, (3, 4), (0, 1))


class Stage:
    """A `Serving` whose transactions are committed by hand."""

    def __init__(self, values: dict[str, bytes] | None = None, term: int = 1) -> None:
        self.states = BucketStates(values or {})
        self.term = term
        self.now_ms = 10_000
        self.serving = Serving(self.states, term, log_of, settings=SETTINGS, limits=LIMITS, times=TIMES)
        self._numbers = 0

    def report(self, node: str, *links: Reported, yielded: bool = False) -> None:
        self._numbers += 1
        self.serving.report(self.message(node, *links, yielded=yielded), self.now_ms, self.now_ms)

    def message(self, node: str, *links: Reported, yielded: bool = False) -> Report:
        return Report(node, 0, self.term, self._numbers, links, yielded=yielded)

    def commit(self) -> dict[str, bytes | None]:
        """One transaction, from begin to end."""
        changes = self.states.take()
        self.serving.written(self.now_ms, self.states.committed)
        return changes

    def answer(self, node: str) -> Answer:
        session = self.serving.sessions[node]
        return session.answer(
            0, self.term, self.now_ms, self.now_ms + TIMES.lease_ms, withdrawn=self.serving.withdrawn
        )

    def owns(self, node: str) -> list[Owns]:
        return [each for each in self.answer(node).verdicts if isinstance(each, Owns)]

    def ends(self, node: str) -> list[Ends]:
        return [each for each in self.answer(node).verdicts if isinstance(each, Ends)]

    def stored(self, node: str) -> list[Stored]:
        return [each for each in self.answer(node).verdicts if isinstance(each, Stored)]

    def grant(self, node: str, number: int, link: Wanted, *others: Reported) -> Reported:
        """Claim, commit until it is granted; returns the link as its node reports it then.

        `others`: the other links of the node.
        """
        self.report(node, *others, Reported(number, link))
        while self.states.unwritten:
            self.commit()
        (owns,) = [each for each in self.owns(node) if each.number == number]
        return Reported(number, link, owns.serial, owns.partition, owns.epoch, positions=owns.positions)
