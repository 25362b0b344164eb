"""The changes that this node asks homes at other nodes for. Pure.

Laws: a change is sent once. It is sent to another home only if the first one said that it has changed
nothing. Each question ends after `WITHIN_MS` at the latest, with an outcome that says whether the change may
have been made. Only the node that was asked can answer a question. All bounds are of questions that are open.
"""

from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from amqp_streams.homes.messages import Asked, Outcome
from amqp_streams.homes.protocol.changes import ASKED_BYTES_MAX, asked_body
from amqp_streams.homes.records import HomeRecord
from amqp_streams.node.lookups import Begun
from amqp_streams.streams import management

WITHIN_MS: Final = 10_000
"""How long a question may take. A home that was killed has a successor after about 11 s; one that stops in
order, within a second.
"""
AGAIN_MS: Final = 200
"""The pause before a home is asked again that did not decide yet."""
OPEN_MAX: Final = 256
"""The most questions of this node."""
OPEN_USER_MAX: Final = OPEN_MAX // 2
"""Those of one user, who must not keep the requests of others away."""
OPEN_A_HOME_MAX: Final = 32
"""The most questions that are sent to one address."""
OPEN_A_HOME_USER_MAX: Final = OPEN_A_HOME_MAX // 2
"""Those of one user."""
_TOO_LARGE: Final = (
    "the names of the user, the container and the link are too long for a request to the node that decides"
    f" about this: together they may have about {ASKED_BYTES_MAX // 2} bytes"
)
OUTCOMES: Final = ("answered", "in doubt", "not reached", "refused")
"""How a question can end, for operators."""


class Ways(Protocol):
    """How questions reach other nodes."""

    def record(self, bucket: int) -> HomeRecord | None:
        """The home of a bucket, as the state topic says."""

    def is_here(self, bucket: int) -> bool:
        """Whether the home is here, and decides."""

    def ask(self, address: str, asked: Asked) -> bool:
        """Send a question. False: the address is this node's own."""

    def forget(self, address: str, number: int) -> None:
        """Do not send a question that still waits for the connection."""

    def problem(self, address: str) -> str | None:
        """Why the node at this address is not reached, if it is not."""


@dataclass(slots=True, eq=False)
class Question:
    """One change. `over`: ends when `result` is known, or when the home is here (then `result` is None).

    `address`: of the home that was asked last. `waits`: for its answer. `sent`: the change may be made there.
    `again_ms`: when a home may be asked that was asked before.
    """

    asked: Asked
    until_ms: int
    over: Begun = field(default_factory=Begun)
    result: Outcome | None = None
    address: str = ""
    waits: bool = False
    sent: bool = False
    again_ms: int = 0


class Asking:
    """`node`: the id of this process."""

    def __init__(self, node: str, ways: Ways) -> None:
        self._node: Final = node
        self._ways: Final = ways
        self._numbers = self._now_ms = 0
        self._open: Final[dict[int, Question]] = {}
        self.outcomes: Final = dict.fromkeys(OUTCOMES, 0)
        """How many questions ended, by outcome."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, asked: Asked, now_ms: int, until_ms: int) -> Question:
        """Ask the home for a change, until then at most. `asked.number` is given here."""
        self._numbers += 1
        self._now_ms = now_ms
        question = Question(replace(asked, number=self._numbers), until_ms)
        own = sum(each.asked.user == asked.user for each in self._open.values())
        if len(self._open) >= OPEN_MAX or own >= OPEN_USER_MAX:
            words = _too_many(OPEN_MAX, OPEN_USER_MAX)
            self._end(question, management.UNAVAILABLE, words, "refused")
        elif len(asked_body(question.asked)) > ASKED_BYTES_MAX:
            self._end(question, management.BAD_REQUEST, _TOO_LARGE, "refused")
        else:
            self._open[self._numbers] = question
            self._advance(question)
        return question

    def forget(self, question: Question) -> None:
        """The answer is not needed any more. A change that was sent is made nevertheless."""
        if self._open.pop(question.asked.number, None) is not None and question.waits:
            self._ways.forget(question.address, question.asked.number)

    # -- from the connections

    def sent(self, number: int) -> None:
        """The question was given to the connection: the change may be made."""
        question = self._open.get(number)
        if question is not None:
            question.sent = True

    def answered(self, address: str, result: Outcome) -> None:
        """The node at this address has answered."""
        question = self._open.get(result.number)
        if question is None or question.address != address or not question.waits:
            return
        if result.moved:
            question.waits = question.sent = False
            question.again_ms = self._now_ms + AGAIN_MS
        else:
            self._open.pop(result.number)
            self._finish(question, result, "answered")

    def lost(self, address: str, number: int) -> None:
        """The connection on which the question was sent has ended."""
        question = self._open.get(number)
        if question is not None and question.address == address and question.sent:
            self._end(question, management.IN_DOUBT, _in_doubt(address), "in doubt")

    def not_taken(self, address: str, number: int) -> None:
        """The node at this address is of a version that takes no questions."""
        question = self._open.get(number)
        if question is not None and question.address == address:
            self._end(question, management.NOT_IMPLEMENTED, _older(address), "refused")

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        self._now_ms = now_ms
        for question in list(self._open.values()):
            if now_ms < question.until_ms:
                self._advance(question)
            elif question.sent:
                self._end(question, management.IN_DOUBT, _in_doubt(question.address), "in doubt")
            else:
                self._end(question, management.UNAVAILABLE, self._unreached(question), "not reached")

    # -- private

    def _advance(self, question: Question) -> None:
        """Send it to the home, unless it was sent."""
        if question.sent or self._now_ms < question.again_ms:
            return
        bucket = question.asked.bucket
        record = self._ways.record(bucket)
        if question.waits and (record is None or record.address == question.address):
            return
        if question.waits:  # for the connection to a node that is not the home any more
            question.waits = False
            self._ways.forget(question.address, question.asked.number)
        if self._ways.is_here(bucket):
            self._open.pop(question.asked.number, None)
            question.over.ended(None, 0)
            return
        if record is None or record.let_go or record.node == self._node:
            return
        users = [
            each.asked.user for each in self._open.values() if each.waits and each.address == record.address
        ]
        if len(users) >= OPEN_A_HOME_MAX or users.count(question.asked.user) >= OPEN_A_HOME_USER_MAX:
            words = f"{_too_many(OPEN_A_HOME_MAX, OPEN_A_HOME_USER_MAX)} (at {record.address})"
            self._end(question, management.UNAVAILABLE, words, "refused")
            return
        question.address, question.waits = record.address, True
        if not self._ways.ask(record.address, question.asked):
            question.waits = False

    def _unreached(self, question: Question) -> str:
        record = self._ways.record(question.asked.bucket)
        if record is None or record.let_go or not question.waits:
            last = "" if record is None else f" (the last one was {record.address})"
            return (
                f"no node decides about this at the moment{last}. Nothing was changed: send the request again"
                " later"
            )
        problem = self._ways.problem(record.address) or "it does not answer"
        return (
            f"the node that decides about this, {record.address}, is not reached: {problem}. Nothing was"
            " changed: send the request to that node, or again when this node reaches it"
        )

    def _end(self, question: Question, status: int, words: str, outcome: str) -> None:
        self.forget(question)
        self._finish(question, Outcome(question.asked.number, status, words), outcome)

    def _finish(self, question: Question, result: Outcome, outcome: str) -> None:
        self.outcomes[outcome] += 1
        question.result = result
        question.over.ended(None, 0)


def _too_many(most: int, of_user: int) -> str:
    return (
        f"more than {most} requests, or {of_user} of yours, wait for nodes that decide: nothing was changed,"
        " send it again later"
    )


def _in_doubt(address: str) -> str:
    return (
        f"the node that decides about this, {address}, did not answer in time: the change may have been made."
        " Look whether it was, and send the request again if it was not"
    )


def _older(address: str) -> str:
    return (
        f"the node that decides about this, {address}, is of an earlier version that does not take requests"
        " of other nodes. Nothing was changed: send the request to that node, or upgrade it"
    )
