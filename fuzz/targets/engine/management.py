"""Requests to `$management` through a link, whatever they hold: each is answered or rejected, and the node
goes on.
"""

from collections.abc import Mapping
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.types import ULong, Value
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.dialogue import serves_others
from fuzz.targets.engine.speech import message
from fuzz.values import TEXTS, mapping, text, value

_OPERATIONS: Final = (
    "CREATE",
    "READ",
    "UPDATE",
    "DELETE",
    "QUERY",
    "GET-TYPES",
    "GET-OPERATIONS",
    "REGISTER",
    "create",
    "",
)
_TYPES: Final = (names.LOG_TYPE, names.CURSOR_TYPE, names.GROUP_TYPE, "", "x")
_KEYS: Final = (
    "partitions",
    "retention-ms",
    "retention-bytes",
    "segment-bytes",
    "segment-ms",
    "compression",
    "log",
    "partition",
    "offset",
    "timestamp",
    "position",
)


def run(data: bytes) -> str:
    """Some requests on one link, then a well-behaved client."""
    draw = Draw(data)
    node = InMemoryNode({"events": 2, "single": 1})
    node.append("events", b"one", b"two")
    client = EnginePair(node)
    if draw.chance(2):
        client.receiver(
            "events",
            name="a",
            properties={names.PARTITION: proton.symbol("1"), names.CONSUMER_GROUP: "group"},
        )
    replies = client.receiver(names.MANAGEMENT, name="replies", credit=100, prepare=_reply_to)
    sender = client.sender(names.MANAGEMENT)
    asked = [message(draw) if draw.chance(6) else _request(draw) for _ in range(1 + draw.below(6))]
    outcomes = [each.outcome for each in client.send(sender, *asked)]
    answered: list[Mapping[str, Any]] = [arrived.message.properties or {} for arrived in replies.arrived]
    statuses = [properties.get(names.STATUS_CODES[0]) for properties in answered]
    if (
        not client.lost
        and sender.refused is None
        and (None in outcomes or outcomes.count("accepted") != len(statuses))
    ):
        words = f"outcomes {outcomes}, answers {statuses}"
        raise WrongError(words)
    if any(not isinstance(status, int) or status == 500 for status in statuses):
        words = f"answers {statuses}: {[arrived.message.properties for arrived in replies.arrived]}"
        raise WrongError(words)
    serves_others(node)
    node.disconnect(client)
    return f"{sorted(map(str, outcomes))} {sorted(map(str, statuses))}"


def _reply_to(link: proton.Link) -> None:
    link.target.address = "replies"


def _request(draw: Draw) -> bytes:
    properties: list[Value] = [
        draw.pick((1, "id", None, value(draw))),
        None,
        None,
        None,
        draw.pick(("replies", "replies", "replies", "nowhere", value(draw))),
    ]
    if draw.chance(3):
        properties.append(value(draw))
    asked: dict[Value, Value] = {
        "operation": draw.pick(_OPERATIONS),
        "type": draw.pick(_TYPES),
        "name": _name(draw),
        "log": _name(draw),
    }
    for key in list(asked):
        if draw.chance(10):
            asked[key] = value(draw)
    body: Value
    if draw.chance(3):  # a request that is carried out
        operation, name = draw.pick((("CREATE", "new"), ("UPDATE", "events"), ("UPDATE", "single")))
        asked |= {"operation": operation, "type": names.LOG_TYPE, "name": name}
        properties[0], properties[4] = "id", "replies"
        body = {draw.pick(_KEYS[:5]): _setting(draw)}
    elif draw.chance(8):
        body = value(draw)
    else:
        settings: dict[Value, Value] = {key: _setting(draw) for key in _KEYS if draw.chance(4)}
        body = settings | (mapping(draw) if draw.chance(8) else {})
    sections: tuple[tuple[int, Value], ...] = ((0x73, properties), (0x74, asked), (0x77, body))
    return b"".join(bytes((0, 0x53, code)) + encode(content) for code, content in sections)


def _name(draw: Draw) -> str:
    return (
        text(draw) if draw.chance(4) else draw.pick(("events", "single", "new", "group", "gr*up", *TEXTS[:3]))
    )


def _setting(draw: Draw) -> Value:
    return draw.pick(
        (
            0,
            1,
            2,
            -1,
            10_001,
            1 << 40,
            ULong(1 << 63),
            "1",
            "@earliest",
            "@latest",
            "0000000000000001",
            None,
            True,
            value(draw),
        )
    )


TARGET: Final = Target("management", run, seconds_max=2.0)
