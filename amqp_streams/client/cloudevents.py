"""Convert events of the CloudEvents SDK to events of this client, and back. Needs the extra `cloudevents`.

    await producer.send(to_event(CloudEvent({"type": "measured", "source": "/roof"}, {"f": 39.4})))
    cloud_event = from_event(received)

An event is stored in the same form as the gateway stores it (CloudEvents AMQP binding 1.0.2), so the gateway,
Spark and other clients can read it. Law: `from_event(to_event(e), raw=True)` has the attributes and the bytes
of `e`. Pure.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

from amqp_streams.client.events import Event
from amqp_streams.client.received import ReceivedEvent
from event_formats.amqp_binding import decode
from event_formats.attributes import check, check_name, shown, text_of
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent, Value
from event_formats.json_format import JSON, write_event
from event_formats.media import STRUCTURED_JSON, fits_binary, is_json
from event_formats.names import AMQP_PREFIX, CONTENT_TYPE, KEY
from service_parts.extras import needs_extra

with needs_extra(__name__, "cloudevents"):
    from cloudevents.core.base import BaseCloudEvent
    from cloudevents.core.exceptions import CloudEventValidationError
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v03.event import CloudEvent as Event03
    from cloudevents.core.v1.event import CloudEvent as Event1

__all__ = ["InvalidEventError", "from_event", "to_event"]

_TIME: Final = "time"


def to_event(cloud_event: BaseCloudEvent) -> Event:
    """Convert a CloudEvent to an event to send. Its key is the extension attribute `partitionkey`.

    Data of type bytes or str (as UTF-8) is sent as it is. All other data is sent as JSON.

    Raises:
        InvalidEventError: an attribute is not valid, or the data cannot be written as JSON.
    """
    attributes = {
        check_name(name): _value(name, value) for name, value in cloud_event.get_attributes().items()
    }
    data: Any = cloud_event.get_data()
    if data is not None and not isinstance(data, bytes | bytearray | str):
        data = _json(data, attributes)
    event = CloudEvent(
        attributes, data.encode() if isinstance(data, str) else None if data is None else bytes(data)
    )
    check(attributes)
    key = text_of(attributes[KEY]) if KEY in attributes else None
    if not fits_binary(event):
        return Event(write_event(event, binary=True), key, content_type=STRUCTURED_JSON)
    content_type = attributes.pop(CONTENT_TYPE, None)
    properties = {AMQP_PREFIX + name: value for name, value in attributes.items()}
    return Event(
        event.data, key, properties, content_type=None if content_type is None else text_of(content_type)
    )


def from_event(event: Event | ReceivedEvent | bytes, *, raw: bool = False) -> BaseCloudEvent:
    """Convert an event, or the bytes of a message, to an SDK event of version 1.0 or 0.3.

    The SDK decodes the data by its content type to a JSON value, text or bytes. `raw`: leave the data as
    bytes.

    Raises:
        InvalidEventError: the event is not a CloudEvent, or its time is a leap second or before the year 1,
        which Python cannot represent.
    """
    read = decode(event if isinstance(event, bytes) else event.encode())
    attributes: dict[str, Any] = dict(read.attributes)
    timed = _TIME in attributes
    # The SDK adds the current time to an event without one. A placeholder prevents that and is removed below.
    attributes[_TIME] = _datetime(attributes[_TIME]) if timed else datetime.fromtimestamp(0, UTC)
    data: Any = read.data
    if data is not None and not raw:
        data = JSONFormat().read_data(data, attributes.get(CONTENT_TYPE))
    kind = Event03 if attributes["specversion"] == "0.3" else Event1
    try:
        made = kind(attributes, data)
    except CloudEventValidationError as error:
        raise InvalidEventError(str(error)) from None
    if not timed:
        del made.get_attributes()[_TIME]
    return made


def _value(name: str, value: object) -> Value:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidEventError(f"{name} is a time without a zone: {value}")
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str | bool | int | bytes):
        return value
    raise InvalidEventError(
        f"{name} is {shown(value)}: an attribute is a string, a boolean, an integer, bytes or a datetime"
    )


def _json(data: object, attributes: dict[str, Value]) -> bytes:
    content_type = attributes.setdefault(CONTENT_TYPE, JSON)
    if not is_json(text_of(content_type)):
        raise InvalidEventError(
            f"data is a {type(data).__name__}, and its type {shown(content_type)} is not JSON: give bytes or"
            " a str"
        )
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"data cannot be JSON: {error}") from None


def _datetime(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise InvalidEventError(f"time {shown(text)} is not a datetime of Python: {error}") from None
