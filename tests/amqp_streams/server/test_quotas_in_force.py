"""Quotas of a connection: events above a quota are refused or wait, and nothing is lost."""

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.policy import Quota
from amqp_streams.server.identity.guard import Login
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, Sending, filter_of
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value
from tests.amqp_streams.decoded import description

RATE = 100_000
SECOND = 1000
MESSAGE = bytes(proton.Message(body=b"x" * 1000).encode())


def node(**quotas: Quota) -> InMemoryNode:
    named = {name.replace("anyone", "*"): quota for name, quota in quotas.items()}
    return InMemoryNode({"temps": 1, "other": 1}, quotas=named)


def pair(here: InMemoryNode, user: str | None) -> EnginePair:
    return EnginePair(here, login=Login(user))


def closed_with(client: EnginePair) -> str | None:
    found = client.connection.remote_condition
    return None if found is None else f"{found.name} {found.description}"


def with_heartbeats(client: EnginePair, seconds: int) -> None:
    """Advance the clock while the client sends heartbeats."""
    for _ in range(2 * seconds):
        client.node.advance(SECOND // 2)
        client.transport.tick(client.node.clock.now_ms / SECOND)
        client.node.run()


def stored(here: InMemoryNode, log: str = "temps") -> int:
    return sum(partition.end for partition in here.store.logs[log].partitions)


def send_while_credit(client: EnginePair, sending: Sending, most: int) -> int:
    sent = 0
    while sent < most and sending.link.credit > 0:
        client.send(sending, MESSAGE)
        sent += 1
    return sent


def test_connections_beyond_the_quota_are_closed_naming_it() -> None:
    here = node(alice=Quota(connections=1))
    first, second = pair(here, "alice"), pair(here, "alice")
    assert closed_with(first) is None
    assert (
        closed_with(second)
        == f"{names.RESOURCE_LIMIT_EXCEEDED} quota 'connections' of 'alice' is used up: it allows at most 1"
        " at once"
    )
    assert closed_with(pair(here, "bob")) is None
    first.connection.close()
    here.run()
    assert closed_with(pair(here, "alice")) is None


def test_links_beyond_the_quota_are_refused_naming_it_over_all_connections() -> None:
    here = node(alice=Quota(links=2))
    first, second = pair(here, "alice"), pair(here, "alice")
    one = first.sender("temps")
    assert first.receiver("temps").refused is None
    over = second.receiver("temps/$info")
    assert over.refused == names.RESOURCE_LIMIT_EXCEEDED
    assert "quota 'links' of 'alice'" in description(over.link.remote_condition)
    first.detach(one)
    assert second.receiver("temps/$info", name="again").refused is None
    first.connection.close()
    here.run()
    assert second.sender("other").refused is None
    assert pair(here, "bob").sender("temps").refused is None


@pytest.mark.parametrize("users", [("alice", "alice"), ("alice", "bob")])
def test_producers_of_one_user_get_the_rate_together(users: tuple[str, str]) -> None:
    """Credit is withheld, nothing is dropped: all that was sent is accepted."""
    here = node(anyone=Quota(bytes_in=RATE))
    clients = [pair(here, user) for user in users]
    links = [client.sender("temps") for client in clients]
    sent = [0, 0]
    for _ in range(500):
        for index, (client, link) in enumerate(zip(clients, links, strict=True)):
            sent[index] += send_while_credit(client, link, 10)
        here.advance(20)
    assert stored(here) == sum(sent)
    rates = len(set(users))
    wanted = 10 * RATE * rates / len(MESSAGE)
    assert 0.95 * wanted < sum(sent) < 1.2 * wanted
    assert 0.8 < sent[0] / sent[1] < 1.2


def test_a_producer_that_sends_larger_messages_than_before_is_held_back() -> None:
    """The producer got its credit for small messages. The node stops reading from it until it has returned to
    its rate, and does not count it as silent.
    """
    here = InMemoryNode(
        {"temps": 1},
        quotas={"alice": Quota(bytes_in=RATE)},
        limits=Limits(idle_timeout_ms=8000),
        block_bytes=16 << 10,
    )
    alice = pair(here, "alice")
    link = alice.sender("temps")
    alice.send(link, proton.Message(body=b"x"))
    credit = link.link.credit
    assert credit > 100
    for _ in range(100):
        link.send(proton.Message(body=b"x" * 20_000))
    here.run()
    burst = stored(here)
    assert burst <= 12  # a second's worth, as much debt again, and what a block holds
    with_heartbeats(alice, 10)
    assert 40 < stored(here) < 75
    with_heartbeats(alice, 30)
    assert stored(here) == 101
    assert closed_with(alice) is None


def test_consumers_of_one_user_get_the_rate_together_and_others_theirs() -> None:
    here = node(alice=Quota(bytes_out=RATE))
    loader = pair(here, None)
    for log in ("temps", "other"):
        link = loader.sender(log)
        for _ in range(1500):
            link.send(MESSAGE)
        here.run()
    assert stored(here) == 1500
    alices = [pair(here, "alice"), pair(here, "alice")]
    logs = ("temps", "other")
    readers = [
        alice.receiver(log, credit=5000, filters=filter_of("@earliest"))
        for alice, log in zip(alices, logs, strict=True)
    ]
    bob = pair(here, "bob").receiver("temps", credit=5000, filters=filter_of("@earliest"))
    assert len(bob.arrived) == 1500
    here.advance(10_000)
    got = [sum(len(arrived.raw) for arrived in reader.arrived) for reader in readers]
    assert 10.5 * RATE < sum(got) < 11.5 * RATE  # what was saved up, and ten seconds
    assert min(got) > 5 * RATE
    here.advance(60_000)
    assert [len(reader.arrived) for reader in readers] == [1500, 1500]
    orders = [[arrived.annotations[names.OFFSET] for arrived in reader.arrived] for reader in readers]
    assert all(order == sorted(order) for order in orders)


@pytest.mark.parametrize(
    "filters",
    [filter_of("@earliest"), {proton.symbol("sql"): proton.Described(proton.ulong(0x120), "TRUE OR x = 1")}],
)
def test_large_events_after_small_ones_are_delayed_too(filters: dict[object, object]) -> None:
    """The size of earlier events does not predict the size of later ones."""
    here = node(alice=Quota(bytes_out=RATE))
    loader = pair(here, None)
    link = loader.sender("temps")
    for size in [1] * 20 + [10_000] * 100:
        link.send(proton.Message(body=b"x" * size))
    here.run()
    reader = pair(here, "alice").receiver("temps", credit=5000, filters=filters)
    assert 20 < len(reader.arrived) < 20 + 12
    here.advance(5_000)
    assert len(reader.arrived) < 20 + 65
    here.advance(10_000)
    assert len(reader.arrived) == 120


def test_a_reader_that_drains_while_it_waits_is_answered_in_the_end() -> None:
    here = node(alice=Quota(bytes_out=RATE))
    link = (loader := pair(here, None)).sender("temps")
    for _ in range(200):
        link.send(MESSAGE)
    loader.node.run()
    alice = pair(here, "alice")
    reader = alice.receiver("temps", filters=filter_of("@earliest"))
    reader.link.drain(1000)
    here.advance(5000)
    assert len(reader.arrived) == 200
    assert reader.link.credit == 0


def test_a_drain_is_not_answered_before_everything_was_sent() -> None:
    """Clients take the answer for the end of the log: at once, while the quota is used up, events would be
    missing without a word.
    """
    here = node(alice=Quota(bytes_out=RATE))
    link = (loader := pair(here, None)).sender("temps")
    for _ in range(300):
        link.send(MESSAGE)
    loader.node.run()
    alice = pair(here, "alice")
    reader = alice.receiver("temps", filters=filter_of("@earliest"))
    reader.link.drain(1000)
    here.run()
    assert 0 < len(reader.arrived) < 300
    assert reader.link.draining(), "the quota is used up"
    here.advance(5000)
    assert (len(reader.arrived), reader.link.draining()) == (300, False)


def test_a_drain_without_credit_is_answered_while_the_quota_is_used_up() -> None:
    here = node(alice=Quota(bytes_out=RATE))
    link = (loader := pair(here, None)).sender("temps")
    for _ in range(300):
        link.send(MESSAGE)
    loader.node.run()
    peer = ScriptedPeer(here, login=Login("alice"))
    peer.open()
    earliest: Value = {names.OFFSET: Symbol("@earliest")}
    peer.attach(
        0,
        source="temps",
        filters={Symbol("f"): Described(ULong(names.FILTER_DELIVERY_ANNOTATIONS_CODE), earliest)},
    )
    peer.flow(0, 1000)
    sent = len(peer.take("transfer"))
    assert 0 < sent < 300
    peer.take("flow")
    peer.flow(0, 0, drain=True, delivery_count=UInt(sent))
    [flow] = [flow for flow in peer.take("flow") if flow.fields["handle"] == 0]
    assert (flow.fields["delivery-count"], flow.fields["link-credit"]) == (sent, 0)


def test_a_link_that_ends_while_it_waits_harms_no_other() -> None:
    here = node(alice=Quota(bytes_out=RATE, bytes_in=RATE))
    alice = pair(here, "alice")
    link = alice.sender("temps")
    for _ in range(300):
        link.send(MESSAGE)
    here.run()
    reader = alice.receiver("temps", credit=1000, filters=filter_of("@earliest"))
    alice.detach(link)
    alice.detach(reader)
    other = pair(here, "alice")
    again = other.receiver("temps", credit=1000, filters=filter_of("@earliest"))
    alice.channel.abort()
    here.advance(20_000)
    assert len(again.arrived) == stored(here)


def test_nothing_stays_counted_however_a_connection_ends() -> None:
    """Links that are refused, wait, end, are taken away; sessions and connections that end in order or
    not.
    """
    here = node(alice=Quota(connections=3, links=8, bytes_in=RATE, bytes_out=RATE))
    account = here.service.quotas.of("alice")
    first, second, third = (pair(here, "alice") for _ in range(3))
    assert closed_with(pair(here, "alice")) is not None
    first.receiver("temps", group="g")
    first.receiver("temps", group="g", name="waits")
    second.receiver("temps", group="g", partition=0, epoch=5)  # takes the first one's
    second.receiver("missing")
    link = second.sender("temps")
    second.send(link, MESSAGE)
    second.detach(link)
    second.receiver("temps/$info", credit=1)
    third.sender("temps")
    third.receiver("temps", credit=5, filters=filter_of("@earliest"))
    while third.receiver("temps").refused is None:
        pass
    assert (account.connections, account.links) == (3, 8)
    third.session.close()
    here.run()
    second.channel.abort()
    here.run()
    first.connection.close()
    third.connection.close()
    here.run()
    assert (account.connections, account.links) == (0, 0)
    here.advance(5000)
    assert account.idle
