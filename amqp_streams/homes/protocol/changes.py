"""Changes that a user asks for, and their outcomes, as JSON, and back. Pure.

Law: a change is one frame. What this version does not know is an error, because a change that is carried out
in part could harm: the other node then gets a status, and not a broken connection (`Asked` has a number).
"""

from typing import Final

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Asked, Change, Outcome
from amqp_streams.homes.protocol.fields import Fields, Json, encoded
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.reports import NUMBER_MAX

ASKED_BYTES_MAX: Final = 64 << 10
"""The names of a cursor have 1,024 characters each, and its log at most 1,024 partitions."""
OUTCOME_BYTES_MAX: Final = 128 << 10
CURSOR_CHARACTERS_MAX: Final = 56 << 10
"""Of the cursor in an outcome. Without it, the other node describes what it knows."""
_STATUS_MAX: Final = 999
_DESCRIPTION_CHARACTERS_MAX: Final = 2000


def asked_body(asked: Asked) -> bytes:
    """The body of a frame ASKED."""
    fields: Json = {
        "number": asked.number,
        "bucket": asked.bucket,
        "change": asked.change,
        "type": asked.type,
        "log": asked.incarnation,
    }
    names = {"group": asked.group, "container": asked.container, "link": asked.link, "user": asked.user}
    fields |= {name: value for name, value in names.items() if value is not None}
    if asked.rights:
        fields["rights"] = sorted(asked.rights)
    if asked.positions:
        fields["positions"] = asked.positions
    return encoded(fields).encode()


def asked_of(body: bytes) -> Asked | Outcome:
    """The change in the body of a frame; the outcome at once, if this version does not know the change.

    Raises:
        FrameError: it is not a change.
    """
    _require_size("asked", body, ASKED_BYTES_MAX)
    fields = Fields.of(body, "asked")
    number, change = fields.whole("number", NUMBER_MAX), fields.text("change")
    if change not in {str(each) for each in Change}:
        words = "the node that decides about this does not know this change: upgrade it"
        return Outcome(number, 501, words)
    return Asked(
        number,
        fields.whole("bucket", BUCKETS - 1),
        Change(change),
        fields.text("type"),
        fields.text("log"),
        fields.text_or_none("group"),
        fields.text_or_none("container"),
        fields.text_or_none("link"),
        fields.text_or_none("user"),
        frozenset(fields.texts("rights")),
        fields.pairs("positions"),
    )


def outcome_body(result: Outcome) -> bytes:
    """The body of a frame OUTCOME."""
    fields: Json = {
        "number": result.number,
        "status": result.status,
        "description": result.description[:_DESCRIPTION_CHARACTERS_MAX],
    }
    if result.moved:
        fields["moved"] = True
    # It is ASCII, and at most twice as long as a text in JSON.
    if result.cursor is not None and len(result.cursor) <= CURSOR_CHARACTERS_MAX:
        fields["cursor"] = result.cursor
    return encoded(fields).encode()


def outcome_of(body: bytes) -> Outcome:
    """The outcome in the body of a frame.

    Raises:
        FrameError: it is not an outcome.
    """
    _require_size("outcome", body, OUTCOME_BYTES_MAX)
    fields = Fields.of(body, "outcome")
    return Outcome(
        fields.whole("number", NUMBER_MAX),
        fields.whole("status", _STATUS_MAX),
        fields.text("description", _DESCRIPTION_CHARACTERS_MAX),
        fields.text_or_none("cursor", CURSOR_CHARACTERS_MAX),
        fields.flag("moved"),
    )


def _require_size(what: str, body: bytes, most: int) -> None:
    if len(body) > most:
        message = f"{what} has {len(body)} bytes, and may have {most}"
        raise FrameError(message)
