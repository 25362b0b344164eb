"""The capabilities that a node offers when a connection opens, and the properties that it has."""

from collections.abc import Mapping
from typing import Final

from amqp_streams import __version__, names
from amqp_streams.wire.types import UInt

OFFERED: Final = (
    names.CAPABILITY_EVENT_STREAMS,
    names.CAPABILITY_ANONYMOUS_RELAY,
    names.CAPABILITY_FILTEX_SQL,
    names.CAPABILITY_FILTEX_PROPERTIES,
    names.CAPABILITY_FILTEX_GROUPS,
    names.CAPABILITY_BATCHED_DELIVERIES,
    names.CAPABILITY_IDEMPOTENT_PRODUCER,
    names.CAPABILITY_BATCHED_SENDS,
)


def announced(unsettled_max: int, store: str | None) -> Mapping[str, object]:
    """The properties of this node's open. `store`: the identity of its store; None: not known."""
    properties = {"product": "amqp-streams", "version": __version__, names.UNSETTLED_MAX: UInt(unsettled_max)}
    return properties if store is None else {**properties, names.STORE: store}
