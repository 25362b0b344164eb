"""Links that share a session, links with names of their own, drains: the sans-IO core and a scripted Proton
peer.
"""

from typing import Any

import proton
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams.client.connection.links import ReceiverLink
from amqp_streams.client.connection.protocol_events import Attached, Detached
from amqp_streams.client.errors import LinkError, SessionError
from amqp_streams.client.options import ACCEPTED
from amqp_streams.proton import sessions
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.pairs import Pair, message, receiver
from tests.amqp_streams.client.pairs import opened as anew
from tests.properties import examples


def opened() -> Pair:
    """Return a client whose peer allows one session."""
    node = peers.Node()
    node.channel_max = 0
    return anew(node=node)


def attached(pair: Pair, address: str, credit: int = 0) -> Any:
    link = pair.client.open_receiver(address)
    assert Attached(link) in pair.run()
    link.grant(credit)
    pair.run()
    return link


def test_links_share_a_session_that_stays_when_the_last_of_them_goes() -> None:
    pair = opened()
    one, two = attached(pair, "one"), attached(pair, "two")
    assert one.session is two.session
    for link in (one, two):
        pair.client.close_link(link)
    pair.run()
    pair.client.receive(b"")
    assert pair.client._detaching == {}
    assert attached(pair, "three").session is one.session


def test_a_link_that_goes_takes_what_was_unread_out_of_the_window_of_the_others() -> None:
    pair = opened()
    stays = attached(pair, "stays", credit=5)
    for _ in range(5):
        pair.node.outgoing["goes"].extend(message(number) for number in range(20))
        goes = attached(pair, "goes", credit=10)
        [theirs] = [link for link in pair.peer.senders if link.source.address == "goes"]
        pair.peer.senders.remove(theirs)
        theirs.condition = proton.Condition("amqp:link:detach-forced", "moved")
        theirs.close()
        [detached] = pair.run()
        assert isinstance(detached, Detached)
        assert detached.link is goes
        assert isinstance(detached.error, LinkError)
        assert not goes.alive
        assert isinstance(goes, ReceiverLink)
        messages, deliveries, aborted = goes.take(10)
        assert (messages, len(deliveries), aborted) == ([], 0, 0)
        pair.node.outgoing["goes"].clear()
    pair.node.outgoing["stays"].extend(message(number) for number in range(3))
    pair.peer.work()
    pair.run()
    messages, deliveries, _ = stays.take(10)
    assert messages == [message(number) for number in range(3)]
    assert sessions.incoming_bytes(stays.session.pointer) == 0
    stays.settle(deliveries, ACCEPTED)
    pair.run()
    assert [state for state, _ in pair.node.outcomes if state] == [int(peers.ACCEPTED)] * 3, (
        "what was unread has no outcome"
    )
    assert pair.client._detaching == {}


def test_a_session_that_the_peer_ends_ends_all_its_links() -> None:
    pair = opened()
    links = {attached(pair, name) for name in ("a", "b", "c")}
    session = pair.node.attaches[0].session
    session.condition = proton.Condition("amqp:internal-error", "broken")
    session.close()
    protocol_events = pair.run()
    assert {
        protocol_event.link for protocol_event in protocol_events if isinstance(protocol_event, Detached)
    } == links
    assert all(
        isinstance(protocol_event.error, SessionError)
        for protocol_event in protocol_events
        if isinstance(protocol_event, Detached)
    )
    assert attached(pair, "d").alive
    assert pair.client._detaching == {}


def test_a_name_is_used_again_on_the_same_session_when_the_peer_closed_the_link() -> None:
    pair = opened()
    keeper = attached(pair, "keeper")
    for _ in range(3):
        link = pair.client.open_receiver("log", name="sub", durable=True)
        assert Attached(link) in pair.run()
        assert link.name == "sub"
        assert link.durable
        pair.peer.senders.pop().close()
        protocol_events, output = pair.client.receive(pair.peer.take_output()), pair.client.take_output()
        assert [type(protocol_event) for protocol_event in protocol_events] == [Detached]
        assert output  # the detach is in flight, and the next attach follows at once
        pair.peer.receive(output)
    pair.run()
    assert keeper.alive
    assert not keeper.durable


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "close", "forced", "end", "run"]), st.integers(0, 3)), max_size=40
    )
)
@settings(max_examples=examples(60), deadline=None)
def test_no_link_remains_after_any_sequence_of_attaches_and_detaches(steps: list[tuple[str, int]]) -> None:
    pair = opened()
    links: list[Any] = []
    for step, number in steps:
        if step == "open":
            link = pair.client.open_receiver(f"log-{number}")
            links.append(link)
        elif step == "close" and links:
            pair.client.close_link(links.pop(number % len(links)))
        elif step == "forced" and pair.peer.senders:
            theirs = pair.peer.senders.pop(number % len(pair.peer.senders))
            theirs.close()
        elif step == "end" and pair.peer.senders:
            session = pair.peer.senders[0].session
            pair.peer.senders = [link for link in pair.peer.senders if link.session is not session]
            session.close()
        if number:
            pair.run()
        links = [link for link in links if link.alive]
        for link in links:
            link.grant(1)
        for name in range(4):
            pair.node.outgoing[f"log-{name}"].append(message(name))
        pair.peer.work()
    for link in links:
        pair.client.close_link(link)
    pair.run()
    pair.client.receive(b"")
    assert pair.client._links == pair.client._detaching == {}
    assert pair.client.links == 0


def test_a_drain_is_over_when_the_peer_has_sent_what_it_has_and_given_back_the_rest() -> None:
    pair = opened()
    link = receiver(pair, "log", credit=10)
    pair.node.outgoing["log"].extend(message(number) for number in range(3))
    link.drain(5)
    pair.run()
    assert link.draining
    assert len(link.take(10)[0]) == 3
    pair.node.drains = True
    pair.peer.work()
    pair.run()
    assert not link.draining
    assert link.take_drained() == 12
    assert link.take_drained() == 0
    assert link.credit == 0
    link.grant(2)
    pair.node.outgoing["log"].extend(message(number) for number in range(3))
    pair.run()
    pair.peer.work()
    pair.run()
    assert len(link.take(10)[0]) == 2
