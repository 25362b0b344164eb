"""Attach, both ways: the engine's termini to an `AttachRequest`, and a grant to what is answered. Spec: AMQP 2.7.3, 3.5.

Law: what is answered is what is in force. Filters that are not are left out, a source is durable only where its place is kept (then it
is its existence and configuration that outlive the link, not the state of each delivery), and settle modes are those that will be used.
"""

from collections.abc import Mapping
from typing import Final

from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.proton.engine import Pointer, data_size, read_data, text, write_data
from amqp_streams.server.links.link import Owner
from amqp_streams.streams.attach import AttachRequest, Consuming, Grant, Kept, Producing, Relaying, Replying, answered_properties
from amqp_streams.wire.types import Array, Symbol, Value

_OUTCOMES: Final = Array(Symbol, tuple(map(Symbol, names.OUTCOMES)))


def attach_request(link: Pointer, container: str, filter_bytes_max: int, owner: Owner) -> AttachRequest:
    """What the peer asks for on a link of this connection.

    Raises:
        PeerError: a map in it is beyond a limit or no AMQP, a name has a NUL, or it wants a transaction coordinator.
    """
    consumer = bool(lib.pn_link_is_sender(link))
    source, target = lib.pn_link_remote_source(link), lib.pn_link_remote_target(link)
    cut = (lib.pn_link_name(link), lib.pn_terminus_get_address(source), lib.pn_terminus_get_address(target))
    require_whole(owner, "the link name or an address", *(text(each) or "" for each in cut))
    here, there = (source, target) if consumer else (target, source)
    if lib.pn_terminus_get_type(here) == lib.PN_COORDINATOR:
        raise PeerError(names.NOT_IMPLEMENTED, "this node has no transactions")
    filters = lib.pn_terminus_filter(source)
    if consumer and data_size(filters) > filter_bytes_max:
        raise PeerError(
            names.RESOURCE_LIMIT_EXCEEDED, f"the filters of a source have at most {filter_bytes_max} bytes", {"field": "filter"}
        )
    return AttachRequest(
        link=text(lib.pn_link_name(link)) or "",
        container=container,
        consumer=consumer,
        address=text(lib.pn_terminus_get_address(here)) or None,
        peer_address=text(lib.pn_terminus_get_address(there)) or None,
        dynamic=bool(lib.pn_terminus_is_dynamic(here)),
        durable=consumer and _durable(source),
        no_source=consumer and lib.pn_terminus_get_type(source) == lib.PN_UNSPECIFIED,
        presettled=consumer and lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED,
        user=owner.user,
        user_groups=owner.user_groups,
        connection=owner.number,
        properties=_map(lib.pn_link_remote_properties(link), "properties"),
        filters=_map(filters, "filter") if consumer else {},
        capabilities=_capabilities(here),
    )


def require_whole(owner: Owner, what: str, *cut: str) -> None:
    """Refuse names with a NUL: the engine knows them only up to there, which may be the name of something else."""
    if cut in owner.nuls.names:
        raise PeerError(names.INVALID_FIELD, f"{what} has a NUL character: use names without one")


def answer_termini(link: Pointer, request: AttachRequest, grant: Grant) -> None:
    """Fill in source, target, settle modes and properties of the answer."""
    source, target = lib.pn_link_source(link), lib.pn_link_target(link)
    remote_source, remote_target = lib.pn_link_remote_source(link), lib.pn_link_remote_target(link)
    if request.consumer:
        lib.pn_terminus_copy(target, remote_target)
        _answer_source(source, request, grant)
    else:
        lib.pn_terminus_copy(source, remote_source)
        lib.pn_terminus_copy(target, remote_target)
        lib.pn_terminus_set_durability(target, lib.PN_NONDURABLE)
        if isinstance(grant, Relaying):
            lib.pn_terminus_set_type(target, lib.PN_TARGET)
        elif isinstance(grant, Producing) and grant.numbered is not None:
            write_data(lib.pn_terminus_capabilities(target), Array(Symbol, (Symbol(names.CAPABILITY_IDEMPOTENT_PRODUCER),)))
    _answer_settle_modes(link, consumer=request.consumer)
    properties = answered_properties(grant)
    if properties:
        write_data(lib.pn_link_properties(link), properties)


def _answer_source(source: Pointer, request: AttachRequest, grant: Grant) -> None:
    lib.pn_terminus_set_type(source, lib.PN_SOURCE)
    address = grant.address if isinstance(grant, Kept) else request.address
    if isinstance(grant, Replying) and request.dynamic:
        lib.pn_terminus_set_dynamic(source, True)  # C function
        address = _made_up(grant)
    kept = isinstance(grant, Kept) or (isinstance(grant, Consuming) and grant.keeps)
    if address is not None:
        lib.pn_terminus_set_address(source, address.encode())
    lib.pn_terminus_set_distribution_mode(source, lib.PN_DIST_MODE_COPY)
    lib.pn_terminus_set_durability(source, lib.PN_CONFIGURATION if kept else lib.PN_NONDURABLE)
    lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER if kept else lib.PN_EXPIRE_WITH_LINK)
    lib.pn_terminus_set_timeout(source, 0)
    write_data(lib.pn_terminus_outcomes(source), _OUTCOMES)
    if isinstance(grant, Consuming) and grant.batching is not None:
        write_data(lib.pn_terminus_capabilities(source), Array(Symbol, (Symbol(names.CAPABILITY_BATCHED_DELIVERIES),)))
    if isinstance(grant, Consuming) and grant.filters:
        write_data(lib.pn_terminus_filter(source), {Symbol(name): value for name, value in grant.filters.items()})


def _durable(source: Pointer) -> bool:
    """Whether a source is to outlive its link for good: AMQP 3.5.5, 3.5.6."""
    durability, expiry = lib.pn_terminus_get_durability(source), lib.pn_terminus_get_expiry_policy(source)
    return durability in (lib.PN_CONFIGURATION, lib.PN_DELIVERIES) and expiry == lib.PN_EXPIRE_NEVER


def _made_up(grant: Replying) -> str:
    return next(address for address in grant.addresses if address.startswith("$reply."))


def _answer_settle_modes(link: Pointer, *, consumer: bool) -> None:
    """A sender says how it settles, a receiver how it does; the other's wish is granted as far as we can. Spec: AMQP 2.8.2, 2.8.3."""
    sending, receiving = lib.pn_link_remote_snd_settle_mode(link), lib.pn_link_remote_rcv_settle_mode(link)
    if consumer:
        presettled = sending == lib.PN_SND_SETTLED
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_SETTLED if presettled else lib.PN_SND_UNSETTLED)
    else:
        lib.pn_link_set_snd_settle_mode(link, sending)
    lib.pn_link_set_rcv_settle_mode(link, receiving)


def _capabilities(terminus: Pointer) -> frozenset[str]:
    """Those that a terminus is wanted to have. What is none that we know matters to nobody."""
    value = read_data(lib.pn_terminus_capabilities(terminus))
    items = value.items if isinstance(value, Array) else value if isinstance(value, list) else (value,)
    return frozenset(str(item) for item in items if isinstance(item, str))


def _map(data: Pointer, field: str) -> Mapping[str, Value]:
    try:
        value = read_data(data)
    except PeerError as error:
        raise PeerError(error.condition, f"{field}: {error.description}", {"field": field}) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PeerError(names.INVALID_FIELD, f"{field} is a map", {"field": field})
    if not all(isinstance(key, str) and key.isascii() for key in value):  # strings are taken for symbols, but they must be able to be some
        raise PeerError(names.INVALID_FIELD, f"the keys of {field} are symbols", {"field": field})
    return {str(key): item for key, item in value.items()}
