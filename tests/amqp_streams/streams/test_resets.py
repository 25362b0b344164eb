"""The target of a request that moves a cursor."""

import pytest

from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.management import BAD_REQUEST, Request, RequestError
from amqp_streams.streams.resets import requested_positions
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Symbol, Timestamp, Value
from tests.amqp_streams.streams.conftest import NOW, Append


def asked(log: StoredLog, /, **body: Value) -> dict[int, int]:
    settings: dict[Value, Value] = {}
    settings.update(body.items())
    return requested_positions(Request("UPDATE", "event-cursor", "id", settings, None, None), log)


@pytest.mark.parametrize(
    ("body", "positions"),
    [
        ({"position": "@earliest"}, {0: 0, 1: 0, 2: 0, 3: 0}),
        ({"position": Symbol("@latest")}, {0: 3, 1: 1, 2: 0, 3: 0}),
        ({"offset": "@latest"}, {0: 3, 1: 1, 2: 0, 3: 0}),
        ({"timestamp": Timestamp(NOW)}, {0: 1, 1: 1, 2: 0, 3: 0}),
        ({"timestamp": NOW + 5, "partition": "0", "log": "temps"}, {0: 2}),
        ({"offset": Symbol(offset_text(1)), "partition": Symbol("0"), "timestamp": None}, {0: 2}),
    ],
)
def test_each_way_to_say_where(
    log: StoredLog, append: Append, body: dict[str, Value], positions: dict[int, int]
) -> None:
    append(log.partitions[0], NOW, NOW + 5, NOW + 9)
    append(log.partitions[1], NOW)
    assert asked(log, **body) == positions


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"position": None},
        {"position": "@latest", "offset": offset_text(0)},
        {"position": 7},
        {"timestamp": True},
        {"timestamp": "now"},
        {"offset": 7, "partition": "0"},
        {"offset": "7", "partition": "0"},
        {"offset": offset_text(0)},
        {"offset": offset_text(0), "partition": "1"},
        {"position": "@latest", "partition": "4"},
        {"position": "@latest", "partition": 0},
        {"position": "@latest", "colour": "blue"},
    ],
)
def test_invalid_values_are_refused(log: StoredLog, append: Append, body: dict[str, Value]) -> None:
    append(log.partitions[0], NOW)
    with pytest.raises(RequestError) as refused:
        asked(log, **body)
    assert refused.value.answer.status == BAD_REQUEST
