"""Inputs that once stopped a partition, a controller or a reader: each may cost itself, and nothing else."""

import json
from collections.abc import Mapping
from typing import Any, Final

from amqp_streams.client import Event

_STRUCTURED: Final = {"content-type": "application/cloudevents+json"}


def _announcing(media_type: str) -> tuple[bytes, Mapping[str, str]]:
    """An event whose data say that they are an event in some format."""
    event = {
        "specversion": "1.0",
        "id": "p",
        "source": "/s",
        "type": "t",
        "datacontenttype": media_type,
        "data_base64": "AAAA",
    }
    return json.dumps(event).encode(), _STRUCTURED


def _binary(**fields: str) -> tuple[bytes, Mapping[str, str]]:
    return b"{}", {"ce-specversion": "1.0", "ce-id": "p", "ce-source": "/s", "ce-type": "t", **fields}


POSTS: Final[tuple[tuple[bytes, Mapping[str, str]], ...]] = (
    *(
        _announcing(each)
        for each in (
            "application/cloudevents+avro",
            "application/cloudevents",
            "application/cloudevents+xml",
            "application/cloudeventsfoo",
            "application/cloudevents+json; charset=utf-16",
            "application/cloudevents-batch+json",
        )
    ),
    _binary(**{"ce-x" + "a" * 200: "v"}),
    _binary(**{"ce-" + "a" * 30_000: "v"}),
    _binary(**{"ce-long": "€" * 2000}),
    _binary(**{"ce-time": "yesterday"}),
    _binary(**{"content-type": "application/cloudevents+protobuf"}),
    (b"[" * 50_000, _STRUCTURED),
    (b'{"specversion":"1.0","id":"\\ud800","source":"/s","type":"t"}', _STRUCTURED),
)
"""Body and headers of requests to an ingress."""

MESSAGES: Final[tuple[Event, ...]] = (
    Event(b"\x00", content_type="application/cloudevents+avro"),
    Event(b"{", content_type="application/cloudevents+json"),
    Event(
        b"x", content_type="text/plain", properties={"cloudEvents_specversion": "1.0", "cloudEvents_id": 7}
    ),
    Event({"a": [1, 2, 3]}, properties={"cloudEvents:specversion": "9.9"}),
    Event("text", properties={"httpHeader_x-request-id": "a\r\nb"}),
    Event(None),
)
"""Messages that an AMQP client may put into a Broker's log."""


def objects(round_: int) -> list[dict[str, Any]]:
    """A ConfigMap with a slip, and a Broker that refers to it; a Trigger for a Broker that does not exist."""
    slips = ("retry: !!bool x", "10: 3", "retry: !!timestamp abc", 'retry: !!int ""', "~: 1", "on: 3")
    name = f"p{round_ % 20}-{round_}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    return [
        {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"delivery": slips[round_ % len(slips)]}},
        {"kind": "Broker", "metadata": {"name": name}, "spec": {"config": config}},
        {
            "kind": "Trigger",
            "metadata": {"name": name},
            "spec": {"broker": "none", "subscriber": {"uri": "http://127.0.0.1:9/"}},
        },
    ]
