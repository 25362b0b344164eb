"""Access rules: no link of a user without rights lives on after the node has read the rules."""

from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.control import InfoLink
from amqp_streams.server.links.pending import PendingLink
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.server.service import EventService
from amqp_streams.streams.attach import Relaying
from tests.simulation.machine.logins import Logins

_OF_LOGS = (ConsumerLink, ProducerLink, InfoLink, PendingLink)


def require_rights(service: EventService, logins: Logins) -> None:
    """At any time: the links to logs belong to users with rights."""
    for connection in service.connections:
        user = connection.user
        if user is None or user in logins.in_force:
            continue
        for link in connection.find_links(lambda _link: True):
            if not isinstance(link, _OF_LOGS) or isinstance(link.grant, Relaying):
                continue
            assert not link.alive or link.closing, f"{user} has no rights, and link {link.name} lives"
