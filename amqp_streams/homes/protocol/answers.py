"""Answers as JSON, and back. Pure.

Law: what an answer asks for is obeyed whole or not at all. A verdict that this version does not know is an
error: without it, a link could continue that must end.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, assert_never

from amqp_streams.errors import PeerError
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Answer, Ends, Leaves, Owns, Stored, Verdict
from amqp_streams.homes.protocol.fields import Fields, Json
from amqp_streams.homes.protocol.parts import Parts, Unfinished, parts_of
from amqp_streams.homes.protocol.reports import NUMBER_MAX, REPORT_BYTES_MAX
from amqp_streams.streams.groups.claims import EPOCH_MAX

ANSWER_BYTES_MAX: Final = 16 * REPORT_BYTES_MAX
"""All parts of an answer. The shortest links of a full report are 18,000: each can end with an error of 800
characters.
"""
UNFINISHED_BYTES_MAX: Final = 2 * ANSWER_BYTES_MAX
"""The unfinished answers of all homes."""
REMAINING_MS_MAX: Final = 60_000
"""How long grants may hold: leases are a few seconds."""
_WITHIN_MS_MAX: Final = 2**63 - 1
_SYMBOL_CHARACTERS_MAX: Final = 255
_PARTITION_MAX: Final = 2**31 - 1


def parts(answer: Answer) -> Iterator[bytes]:
    """The bodies of the frames of an answer."""
    head: Json = {
        "bucket": answer.bucket,
        "term": answer.term,
        "number": answer.number,
        "remaining_ms": answer.remaining_ms,
    }
    if answer.processed:
        head["processed"] = True
    if answer.withdrawn:
        head["withdrawn"] = True
    return parts_of(head, "verdicts", map(_of_verdict, answer.verdicts))


class Answers:
    """The answers in the frames of a connection."""

    def __init__(self, unfinished: Unfinished | None = None) -> None:
        self._parts: Final[Parts[Verdict]] = Parts("answer", ANSWER_BYTES_MAX, unfinished)

    def give_up(self) -> None:
        """Forget an unfinished answer: the connection has ended."""
        self._parts.give_up()

    def take(self, body: bytes) -> Answer | None:
        """Take the body of a frame. None: more parts of the answer follow.

        Raises:
            FrameError: it is not an answer.
        """
        fields = Fields.of(body, "answer")
        answer = Answer(
            fields.whole("bucket", BUCKETS - 1),
            fields.whole("term", NUMBER_MAX),
            fields.whole("number", NUMBER_MAX),
            fields.flag("processed"),
            fields.whole("remaining_ms", REMAINING_MS_MAX),
            (),
            fields.flag("withdrawn"),
        )
        verdicts = [_verdict(each) for each in fields.inner_list("verdicts")]
        whole = self._parts.take(fields, answer, verdicts, len(body))
        return None if whole is None else replace(answer, verdicts=whole)


def _of_verdict(verdict: Verdict) -> Json:
    match verdict:
        case Owns():
            owns: Json = {"kind": "owns", "number": verdict.number, "serial": verdict.serial}
            if verdict.partition is not None:
                owns["partition"] = verdict.partition
            if verdict.epoch is not None:
                owns["epoch"] = verdict.epoch
            return {**owns, "positions": verdict.positions}
        case Leaves():
            return {
                "kind": "leaves",
                "number": verdict.number,
                "within_ms": verdict.within_ms,
                **_of_error(verdict.error),
            }
        case Ends():
            return {"kind": "ends", "number": verdict.number, **_of_error(verdict.error)}
        case Stored():
            return {"kind": "stored", "number": verdict.number, "positions": verdict.positions}
        case _:
            assert_never(verdict)


def _of_error(error: PeerError) -> Json:
    made: Json = {"condition": error.condition, "description": error.description}
    if error.info:
        made["info"] = error.info
    return made


def _verdict(fields: Fields) -> Verdict:
    number = fields.whole("number", NUMBER_MAX)
    match fields.text("kind"):
        case "owns":
            serial = fields.pair_or_none("serial")
            if serial is None:
                raise fields.error("serial", "the term of the home and the number of the grant")
            return Owns(
                number,
                serial,
                fields.whole_or_none("partition", _PARTITION_MAX),
                fields.whole_or_none("epoch", EPOCH_MAX),
                fields.pairs("positions"),
            )
        case "leaves":
            return Leaves(number, _error(fields), fields.whole("within_ms", _WITHIN_MS_MAX))
        case "ends":
            return Ends(number, _error(fields))
        case "stored":
            return Stored(number, fields.pairs("positions"))
        case _:
            raise fields.error("kind", "owns, leaves, ends or stored")


def _error(fields: Fields) -> PeerError:
    condition, info = fields.text("condition", _SYMBOL_CHARACTERS_MAX), fields.values("info")
    # The client gets them as symbols of AMQP.
    if not condition.isascii():
        raise fields.error("condition", "in ASCII")
    if not all(key.isascii() for key in info):
        raise fields.error("info", "an object with keys in ASCII")
    return PeerError(condition, fields.text("description"), info)
