"""What of the rules concerns links: the right that an attach needs, and whether a link that is there may stay when rules change."""

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import Right
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import AttachRequest, Consuming, Grant, Informing, Producing, Relaying


def require_attach(permissions: Permissions, request: AttachRequest) -> None:
    """Let an attach pass as far as the rules go. What `$management` and a null target carry is judged message by message.

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


def revoked(permissions: Permissions, grant: Grant) -> PeerError | None:
    """Why a link has to go, now that these are its connection's permissions; None: it stays."""
    match grant:
        case Producing(log=log):
            return _lacking(permissions, Right.SEND, log.name, None)
        case Informing(log=log):
            return _lacking(permissions, Right.INFO, log.name, None)
        case Consuming(request=request, log=log):
            return _lacking(permissions, Right.RECEIVE, log.name, _group(request))
        case Relaying():
            grant.permissions = permissions
            grant.producing.clear()
            return None
        case _:
            return None


def _lacking(permissions: Permissions, right: Right, log: str, group: str | None) -> PeerError | None:
    return None if permissions.allows(right, log, group) else permissions.refusal(right, log, group)


def _group(request: AttachRequest) -> str | None:
    group = request.properties.get(names.CONSUMER_GROUP)
    return group if isinstance(group, str) and group else None
