"""Translates between attach frames and the requests and grants of the node.

The client's source and target become an `AttachRequest`, and a grant becomes the source and target of the
answer. Spec: AMQP 2.7.3, 3.5.

Law: the answer states what is in force. Filters that the node does not apply are left out. A source is
durable only where its cursor is kept; durable then means `configuration`: the source outlives the link, the
state of each delivery does not. The settle modes are those that the node uses.
"""

from collections.abc import Mapping

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.proton import links, termini
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.termini import Terminus
from amqp_streams.proton.values import data_size, read_value
from amqp_streams.server.links.link import Owner
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Kept,
    Producing,
    Relaying,
    Replying,
    answered_properties,
)
from amqp_streams.wire.types import Array, Value


def attach_request(link: Pointer, container: str, filter_bytes_max: int, owner: Owner) -> AttachRequest:
    """Read what the client asks for in its attach frame.

    Raises:
        PeerError: a map is larger than its limit or not valid AMQP, a name contains a NUL character, or the
        target is a transaction coordinator.
    """
    consumer = bool(links.is_sender(link))
    source, target = termini.peer_source(link), termini.peer_target(link)
    name = links.name(link)
    require_whole(owner, "the link name or an address", name, source.address or "", target.address or "")
    # "here" is the terminus that names something on this node: the source of a consumer, the target of a
    # producer.
    here, there = (source, target) if consumer else (target, source)
    if here.is_coordinator:
        raise PeerError(names.NOT_IMPLEMENTED, "this node does not support transactions")
    if consumer and data_size(source.filters) > filter_bytes_max:
        raise PeerError(
            names.RESOURCE_LIMIT_EXCEEDED,
            f"the filters of a source must have at most {filter_bytes_max} bytes",
            {"field": "filter"},
        )
    return AttachRequest(
        link=name,
        container=container,
        consumer=consumer,
        address=here.address,
        peer_address=there.address,
        dynamic=here.dynamic,
        durable=consumer and source.outlives_link,
        no_source=consumer and source.absent,
        presettled=consumer and links.wants_presettled(link),
        user=owner.user,
        user_groups=owner.user_groups,
        connection=owner.number,
        properties=_map(links.peer_properties(link), "properties"),
        filters=_map(source.filters, "filter") if consumer else {},
        capabilities=_capabilities(here),
    )


def require_whole(owner: Owner, what: str, *cut: str) -> None:
    """Refuse names with a NUL character.

    Proton ends a name at the NUL, and the rest could name something else.

    Raises:
        PeerError: one of the names in `cut` was cut at a NUL.
    """
    if cut in owner.nuls.names:
        raise PeerError(names.INVALID_FIELD, f"{what} has a NUL character: remove it")


def answer_termini(link: Pointer, request: AttachRequest, grant: Grant) -> None:
    """Fill in the source, target, settle modes and properties of the answering attach frame."""
    source, target = termini.source(link), termini.target(link)
    # AMQP 2.6.3: the answer echoes the client's own terminus.
    target.copy(termini.peer_target(link))
    if request.consumer:
        _answer_source(source, request, grant)
    else:
        source.copy(termini.peer_source(link))
        target.keep_nothing()
        if isinstance(grant, Relaying):
            target.be_target()
        elif isinstance(grant, Producing) and (offered := _target_capabilities(grant)):
            target.set_capabilities(offered)
    links.answer_settle_modes(link, sends=request.consumer)
    properties = answered_properties(grant)
    if properties:
        links.set_properties(link, properties)


def _answer_source(source: Terminus, request: AttachRequest, grant: Grant) -> None:
    source.be_source()
    address = grant.address if isinstance(grant, Kept) else request.address
    if isinstance(grant, Replying) and request.dynamic:
        source.make_dynamic()
        address = _made_up(grant)
    if address is not None:
        source.set_address(address)
    # `copy` is the only distribution mode: each consumer gets every event (3.5.7).
    source.hand_out_copies()
    if isinstance(grant, Kept) or (isinstance(grant, Consuming) and grant.keeps):
        source.keep_configuration()
    else:
        source.end_with_link()
    source.expire_at_once()
    source.set_outcomes(names.OUTCOMES)
    if isinstance(grant, Consuming) and grant.batching is not None:
        source.set_capabilities([names.CAPABILITY_BATCHED_DELIVERIES])
    if isinstance(grant, Consuming) and grant.filters:
        source.set_filters(grant.filters)


def _target_capabilities(grant: Producing) -> list[str]:
    numbered = [] if grant.numbered is None else [names.CAPABILITY_IDEMPOTENT_PRODUCER]
    return numbered + ([names.CAPABILITY_BATCHED_SENDS] if grant.batch_events else [])


def _made_up(grant: Replying) -> str:
    return next(address for address in grant.addresses if address.startswith("$reply."))


def _capabilities(terminus: Terminus) -> frozenset[str]:
    """Return the capabilities that the client wants. Values of unknown types are ignored."""
    value = read_value(terminus.capabilities)
    items = value.items if isinstance(value, Array) else value if isinstance(value, list) else (value,)
    return frozenset(str(item) for item in items if isinstance(item, str))


def _map(data: Pointer, field: str) -> Mapping[str, Value]:
    try:
        value = read_value(data)
    except PeerError as error:
        raise PeerError(error.condition, f"{field}: {error.description}", {"field": field}) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PeerError(names.INVALID_FIELD, f"{field} must be a map", {"field": field})
    # The standard wants symbols. Many clients send strings, which are accepted if a symbol could have the
    # same text.
    if not all(isinstance(key, str) and key.isascii() for key in value):
        raise PeerError(names.INVALID_FIELD, f"the keys of {field} must be symbols", {"field": field})
    return {str(key): item for key, item in value.items()}
