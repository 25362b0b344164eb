"""The identifiers of a JMS selector and what they mean in an AMQP message.

Spec: Jakarta Messaging 3.8.1.1; AMQP JMS mapping 3.2.

    JMSMessageID … JMSXGroupSeq   a field of header or properties, as the AMQP JMS mapping defines
    amqp.<field>                  the same by its AMQP name, for example amqp.content_type or amqp.contentType
    amqp.annotation.<name>        a message annotation. x-opt-offset, x-opt-sequence-number and
                                  x-opt-enqueued-time mean offset and timestamp of this log
    any other identifier          an application property
"""

import re
from typing import Final

from amqp_streams import names
from amqp_streams.filters.fields import POSITIONS, spellings
from amqp_streams.filters.language.syntax import (
    Call,
    Constant,
    Expression,
    Field,
    Literally,
    Negative,
    Operation,
)
from amqp_streams.filters.refusal import FilterError
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from amqp_streams.wire.offsets import OFFSET_MAX, offset_text

DELIVERY_MODE: Final = "jms-delivery-mode"
REDELIVERED: Final = "jms-redelivered"

_JMS: Final[dict[str, tuple[int, str]]] = {
    "JMSMessageID": (PROPERTIES, "message-id"),
    "JMSCorrelationID": (PROPERTIES, "correlation-id"),
    "JMSTimestamp": (PROPERTIES, "creation-time"),
    "JMSType": (PROPERTIES, "subject"),
    "JMSDestination": (PROPERTIES, "to"),
    "JMSReplyTo": (PROPERTIES, "reply-to"),
    "JMSExpiration": (PROPERTIES, "absolute-expiry-time"),
    "JMSPriority": (HEADER, "priority"),
    "JMSXUserID": (PROPERTIES, "user-id"),
    "JMSXGroupID": (PROPERTIES, "group-id"),
    "JMSXGroupSeq": (PROPERTIES, "group-sequence"),
}
_EVENT_HUBS: Final = {
    "x-opt-offset": names.OFFSET,
    "x-opt-sequence-number": names.OFFSET,
    "x-opt-enqueued-time": names.TIMESTAMP,
}
_AMQP: Final = {
    f"amqp.{written}": (section, name)
    for section, fields in POSITIONS.items()
    for name in fields
    # Without the hyphenated spelling: in a selector, a hyphen is a minus.
    for written in spellings(name)[1:]
}
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_BEFORE_ALL: Final = "-1"
"""A text that is less than every offset."""
_ANNOTATIONS: Final = ("amqp.annotation.", "amqp.message_annotation.", "amqp.messageannotation.")


def selector_field(identifier: str, position: int) -> Expression:  # noqa: PLR0911 - one for each kind of name
    """Return the field or expression that an identifier of a selector means.

    Raises:
        FilterError: the identifier begins with `amqp.` and is unknown.
    """
    if identifier in _JMS or identifier in _AMQP:
        section, name = _JMS.get(identifier) or _AMQP[identifier]
        return Field(section, name, (), position)
    if identifier == "JMSDeliveryMode":
        return Call(DELIVERY_MODE, (Field(HEADER, "durable", (), position),), position)
    if identifier == "JMSRedelivered":
        return Call(REDELIVERED, (Field(HEADER, "delivery-count", (), position),), position)
    if identifier == "JMSXDeliveryCount":
        return Operation("+", Field(HEADER, "delivery-count", (), position), Constant(1, position), position)
    for prefix in _ANNOTATIONS:
        if identifier.startswith(prefix):
            name = identifier.removeprefix(prefix)
            if name in _EVENT_HUBS:
                return Field(DELIVERY_ANNOTATIONS, _EVENT_HUBS[name], (), position)
            return Field(MESSAGE_ANNOTATIONS, name, (), position)
    if identifier.startswith("amqp."):
        reason = f"{identifier[:64]!r} is not a known identifier"
        raise FilterError(reason, position + 1)
    return Field(APPLICATION_PROPERTIES, identifier, (), position)


def _constant(node: Expression) -> Literally:
    if (
        isinstance(node, Negative)
        and isinstance(node.operand, Constant)
        and isinstance(node.operand.value, int)
    ):
        return -node.operand.value
    return node.value if isinstance(node, Constant) else None


def compared(field: Expression, other: Expression) -> Expression:
    """Return `other` in the form that a comparison with `field` needs.

    Clients that were written for Event Hubs may put numbers in quotes, and write offsets without leading
    zeros: a number that is compared with an offset becomes the text of that offset, and a number in quotes
    that is compared with a timestamp becomes milliseconds.
    """
    if not isinstance(field, Field) or field.section != DELIVERY_ANNOTATIONS or field.path:
        return other
    value = _constant(other)
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    ):
        return other
    number = int(value)
    if field.name == names.TIMESTAMP and number >= 0:
        return Constant(number, other.position)
    if field.name == names.OFFSET:
        return Constant(offset_text(min(number, OFFSET_MAX)) if number >= 0 else _BEFORE_ALL, other.position)
    return other
