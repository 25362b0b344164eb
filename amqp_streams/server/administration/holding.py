"""Why a connection or a link does not move: what withholds credit, and what the node waits for.

Law: the reasons are read when an operator asks. Nothing is counted for them.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from amqp_streams.config import Limits
from amqp_streams.proton import links
from amqp_streams.server.committing import Commits
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.link import AnyLink, Pause
from amqp_streams.server.links.pending import PendingLink
from amqp_streams.server.links.producer import ProducerLink


class Reason(StrEnum):
    """What a connection or a link waits for."""

    DISK = "disk"
    PARTITION = "partition"
    QUOTA_IN = "quota-in"
    QUOTA_OUT = "quota-out"
    LOG = "log"
    SETTLEMENT = "settlement"
    CREDIT = "credit"
    UNREAD = "unread"
    HANDOVER = "handover"
    ATTACH = "attach"
    STOPPING = "stopping"


DETAILS: Final = {
    Reason.DISK: "too many bytes wait for the disk (limits.pending_bytes): the node grants no credit",
    Reason.PARTITION: "too many received bytes wait for its partition: the node grants the link no credit",
    Reason.QUOTA_IN: "the user has used up its quota bytes_in: the node grants no credit",
    Reason.QUOTA_OUT: "the user has used up its quota bytes_out: the node sends nothing",
    Reason.LOG: "a message waits until its log is created",
    Reason.SETTLEMENT: "too many deliveries are not settled by the client (limits.unsettled)",
    Reason.CREDIT: "events wait, and the client grants no credit",
    Reason.UNREAD: "the client does not read what the node has sent (limits.connection_pending_bytes)",
    Reason.HANDOVER: "the link gives its partition to another member, and waits for settlements",
    Reason.ATTACH: "the attach is not answered yet: it waits for a partition, a log or the disk",
    Reason.STOPPING: "the node stops: it reads nothing more",
}
_PAUSES: Final = {
    Pause.DISK: Reason.DISK,
    Pause.QUOTA: Reason.QUOTA_IN,
    Pause.LOG: Reason.LOG,
    Pause.STOPPING: Reason.STOPPING,
}


def pause_reasons(pauses: Collection[Pause], *, blocked: bool) -> list[Reason]:
    """What the whole connection waits for. `blocked`: the client does not read."""
    # A pause that lasts for one turn only is how a busy connection looks, and nothing to act on.
    found = [reason for pause, reason in _PAUSES.items() if pause in pauses]
    return [*found, Reason.UNREAD] if blocked else found


def link_reason(link: AnyLink, commits: Commits, limits: Limits) -> Reason | None:
    """What a link waits for; None: for nothing but its client's next step."""
    match link:
        case PendingLink():
            return Reason.ATTACH
        case ProducerLink():
            return _producer_reason(link, commits, limits)
        case ConsumerLink():
            return _consumer_reason(link, limits)
        case _:
            return None


def _producer_reason(link: ProducerLink, commits: Commits, limits: Limits) -> Reason | None:
    throttle = link.owner.account.bytes_in
    if link in commits.withheld:
        return Reason.DISK
    if commits.stalls(link):
        return Reason.PARTITION
    if throttle is not None and throttle.holds(link):
        return Reason.QUOTA_IN
    full = link.second and links.unsettled(link.pointer) >= limits.unsettled
    return Reason.SETTLEMENT if full else None


def _consumer_reason(link: ConsumerLink, limits: Limits) -> Reason | None:
    throttle = link.owner.account.bytes_out
    if link.leaving is not None:
        return Reason.HANDOVER
    if throttle is not None and throttle.holds(link):
        return Reason.QUOTA_OUT
    if links.unsettled(link.pointer) >= limits.unsettled:
        return Reason.SETTLEMENT
    if links.credit(link.pointer) <= 0:
        # A link that has read all of its log needs no credit.
        return None if link.near_end else Reason.CREDIT
    return Reason.UNREAD if link.clogged() else None
