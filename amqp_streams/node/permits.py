"""Whether a link may attach: by access rules, also when they change, and by what shared logs can do."""

from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import Right
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Informing,
    Kept,
    Pending,
    Producing,
    Relaying,
)

_WITHOUT_HOMES: Final = "are not offered by this node, which has no node.listen (--node-listen)"


def require_attach(permissions: Permissions, request: AttachRequest) -> None:
    """Check the rules for an attach.

    Messages to `$management` and to a null target are checked one by one later.

    Raises:
        PeerError: amqp:unauthorized-access.
    """
    address = request.address
    if address is None or address == names.MANAGEMENT or request.dynamic:
        return
    if not request.consumer:
        permissions.require(Right.SEND, address)
    elif address.endswith(names.INFO_SUFFIX):
        permissions.require(Right.INFO, address.removesuffix(names.INFO_SUFFIX))
    else:
        permissions.require(Right.RECEIVE, address, _group(request))


def require_available(request: AttachRequest, *, shared: bool, homes: bool = False) -> None:
    """Refuse an attach that needs what shared logs do not have. `shared`: other nodes use the same logs.

    `homes`: homes decide about groups, epochs and cursors.

    Raises:
        PeerError: amqp:not-implemented.
    """
    if not shared:
        return
    what = _needs_home(request)
    if what is not None and not homes:
        raise PeerError(names.NOT_IMPLEMENTED, f"{what} {_WITHOUT_HOMES}")


def revoked(permissions: Permissions, grant: Grant | Pending) -> PeerError | None:
    """Why a link or a waiting attach must end with these permissions; None: it may stay."""
    if isinstance(grant, Relaying):  # it checks the permissions for each log
        grant.permissions = permissions
        grant.producing.clear()
    needed = _needed(grant)
    return None if needed is None or permissions.allows(*needed) else permissions.refusal(*needed)


def _needed(grant: Grant | Pending) -> tuple[Right, str, str | None] | None:
    """The right that a link needs, on which log, in which group; None if it needs no right."""
    match grant:
        case Producing(log=log):
            return Right.SEND, log.name, None
        case Informing(log=log):
            return Right.INFO, log.name, None
        case Consuming(request=request, log=log):
            return Right.RECEIVE, log.name, _group(request)
        case Pending(request=request) if request.address is not None:
            return Right.RECEIVE, request.address, _group(request)
        case Kept(address=address):
            return Right.RECEIVE, address, None
        case _:
            return None


def _group(request: AttachRequest) -> str | None:
    group = request.properties.get(names.CONSUMER_GROUP)
    return group if isinstance(group, str) and group else None


def _needs_home(request: AttachRequest) -> str | None:
    properties = request.properties
    if not request.consumer or request.wants_info:
        return None
    if properties.get(names.CONSUMER_GROUP) is not None:
        return "consumer groups"
    if properties.get(names.EPOCH) is not None:
        return "epochs of consumers"
    if request.no_source:
        return "receivers without a source, which end a durable subscription,"
    return "durable subscriptions" if request.durable else None
