"""Connections are listed, found, ordered and closed, by users who have the right."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import proton
import pytest
from structlog.testing import capture_logs

from amqp_streams import names
from amqp_streams.server.administration.connections import (
    LINKS_A_STEP,
    LOOKS_A_STEP,
    SORTS,
    TEXT_MAX,
    ConnectionRequests,
)
from amqp_streams.server.administration.describing import SHOWN_MAX, SUMMED_A_STEP
from amqp_streams.server.identity.guard import Login
from amqp_streams.streams.access import EVERYTHING, Access, Identity
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from tests.amqp_streams.decoded import description, mapping
from tests.amqp_streams.server.administration.asking import ask, body_of, rule


def pair(node: InMemoryNode, user: str | None, container: str | None = None) -> EnginePair:
    mechanism = None if user is None else "PLAIN"
    return EnginePair(node, container=container, login=Login(user, mechanism=mechanism))


def listed(node: InMemoryNode, user: str | None = None, **body: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(ask(node, "connection", "QUERY", user=user, **body))["connections"]
    return found


def named(node: InMemoryNode, user: str) -> str:
    """The name of the only connection of a user."""
    (one,) = [each["name"] for each in listed(node, user="admin") if each["user"] == user]
    return str(one)


def closed(client: EnginePair) -> tuple[str, str] | None:
    found = client.connection.remote_condition
    return None if found is None else (found.name, description(found))


def guarded() -> InMemoryNode:
    """A node whose rules make `admin` its administrator."""
    return InMemoryNode(
        {"temps": 1},
        access=(rule("*", "temps", "send receive manage"), rule("admin", "other *", "manage")),
    )


def test_a_connection_is_described_with_its_links() -> None:
    node = InMemoryNode({"temps": 2})
    client = pair(node, "alice", "meter")
    sender = client.sender("temps")
    client.send(sender, *[proton.Message(body=b"x" * 10)] * 3)
    client.receiver("temps", credit=2, group="billing")
    (one,) = listed(node)
    assert one.items() >= {
        "user": "alice",
        "mechanism": "PLAIN",
        "peer": "127.0.0.1:40000",
        "container": "meter",
        "protocol": "amqp",
        "tls": False,
        "state": "open",
        "since-ms": node.clock.now_ms,
        "own": False,
        "links": 2,
        "producers": 1,
        "consumers": 1,
        "events-in": 3,
        "held": [],
    }.items()  # fmt: skip
    read = body_of(ask(node, "connection", "READ", one["name"]))
    assert {key: read[key] for key in one} == one
    producer, consumer = read["attached"]
    assert (producer["role"], producer["log"], producer["events"]) == ("producer", "temps", 3)
    assert (consumer["role"], consumer["group"], consumer["credit"]) == ("consumer", "billing", 2)


def test_rates_are_averages_of_the_last_seconds() -> None:
    node = InMemoryNode({"temps": 1})
    client = pair(node, None)
    sender = client.sender("temps")
    node.advance(60_000)
    client.send(sender, *[proton.Message(body=b"x")] * 50)
    node.advance(5_000)
    (busy,) = listed(node)
    assert 4 < busy["events-in-per-second"] <= 10
    node.advance(20_000)
    (idle,) = listed(node)
    assert (idle["events-in-per-second"], idle["events-in"]) == (0, 50)


def test_the_counters_of_ended_links_stay() -> None:
    node = InMemoryNode({"temps": 1})
    client = pair(node, None)
    sender = client.sender("temps")
    client.send(sender, proton.Message(body=b"x"))
    client.detach(sender, closed=True)
    (one,) = listed(node)
    assert (one["links"], one["events-in"]) == (0, 1)


def test_a_close_names_its_user_and_reaches_the_client_and_the_audit() -> None:
    node = guarded()
    client = pair(node, "alice", "meter")
    name = named(node, "alice")
    admin = pair(node, "admin")
    receiver = admin.receiver("$management", credit=10, prepare=_called_answers)
    sender = admin.sender("$management")
    with capture_logs() as lines:
        properties = {"operation": "DELETE", "type": "connection", "name": name}
        body = {"reason": "sends to the wrong log"}
        admin.send(sender, proton.Message(body=body, id=1, reply_to="answers", properties=properties))
        node.run()
    assert mapping(receiver.arrived[0].message.properties)["status-code"] == 204
    assert closed(client) == (
        names.CONNECTION_FORCED,
        "closed by user 'admin': sends to the wrong log",
    )
    (line,) = [line for line in lines if line["event"] == "managed"]
    assert line.items() >= {
        "user": "admin",
        "operation": "DELETE",
        "type": "connection",
        "name": name,
        "owner": "alice",
        "container": "meter",
        "peer": "127.0.0.1:40000",
        "reason": "sends to the wrong log",
    }.items()  # fmt: skip
    assert ask(node, "connection", "READ", name, user="admin").status == 404
    assert [each["user"] for each in listed(node, user="admin")] == ["admin"]


def _called_answers(link: Any) -> None:
    link.target.address = "answers"


# -- rights


@pytest.mark.parametrize("operation", ["READ", "DELETE"])
def test_the_connections_of_others_look_like_missing_ones_without_the_right(operation: str) -> None:
    node = guarded()
    alice, bob = pair(node, "alice"), pair(node, "bob")
    name = named(node, "alice")
    there = ask(node, "connection", operation, name, user="bob")
    assert there == Answer(403, "user 'bob' has no right 'manage' on '*'")
    assert ask(node, "connection", operation, "ffff-1", user="bob") == there
    node.run()
    assert closed(alice) is closed(bob) is None


def test_a_user_sees_and_closes_its_own_connections_only() -> None:
    node = guarded()
    first, other = pair(node, "alice"), pair(node, "bob")
    name = named(node, "alice")
    assert [each["name"] for each in listed(node, user="alice")] == [name]
    assert body_of(ask(node, "connection", "READ", name, user="alice"))["user"] == "alice"
    assert ask(node, "connection", "DELETE", name, user="alice").status == 204
    node.run()
    assert closed(first) == (names.CONNECTION_FORCED, "closed by user 'alice'")
    assert closed(other) is None


def test_anonymous_clients_see_no_connection_of_each_other() -> None:
    node = guarded()
    pair(node, None)
    assert listed(node) == []
    name = listed(node, user="admin")[0]["name"]
    assert ask(node, "connection", "DELETE", name).status == 403


def test_without_rules_every_user_administers() -> None:
    node = InMemoryNode()
    pair(node, "alice")
    pair(node, None)
    assert len(listed(node, user="bob")) == 2
    assert ask(node, "connection", "READ", "ffff-1").status == 404


def test_the_connection_of_the_request_is_not_closed() -> None:
    node = InMemoryNode()
    client = pair(node, "alice")
    (number,) = [each.number for each in node.service.connections]
    (one,) = body_of(ask(node, "connection", "QUERY", connection=number))["connections"]
    assert one["own"] is True
    answer = ask(node, "connection", "DELETE", one["name"], connection=number)
    assert answer.status == 409
    assert closed(client) is None


class _Silent:
    """A peer that has connected and says nothing."""

    is_closed = False

    def output(self) -> bytes:
        return b""

    def input(self, data: bytes) -> None:
        pass

    def closed(self) -> None:
        self.is_closed = True


def test_a_client_that_has_not_logged_in_is_seen_and_closed_by_administrators_only() -> None:
    node, silent = guarded(), _Silent()
    node.connect(silent)
    pair(node, "alice")
    (one,) = [each for each in listed(node, user="admin") if each["state"] == "login"]
    assert (one["user"], one["container"], one["links"], one["events-in"]) == (None, None, 0, 0)
    assert [each["state"] for each in listed(node, user="alice")] == ["open"]
    assert body_of(ask(node, "connection", "READ", one["name"], user="admin"))["attached"] == []
    assert ask(node, "connection", "DELETE", one["name"], user="alice").status == 403
    node.run()
    assert not silent.is_closed
    assert ask(node, "connection", "DELETE", one["name"], user="admin").status == 204
    node.run()
    assert silent.is_closed


# -- lists


def test_a_search_finds_users_peers_containers_links_and_addresses() -> None:
    node = InMemoryNode({"temps": 1, "orders": 1})
    meter, shop = pair(node, "alice", "Meter-7"), pair(node, "bob", "shop")
    meter.receiver("temps", name="kitchen", group="billing")
    shop.sender("orders")
    names_of = {each["user"]: each["name"] for each in listed(node)}
    for text in ("ALICE", "meter-7", "temps", "kitchen", "billing", ":40000", names_of["alice"]):
        assert [each["user"] for each in listed(node, search=text)] == ["alice"], text
    answer = body_of(ask(node, "connection", "QUERY", search="nothing like this"))
    assert answer == {"connections": [], "total": 0}


def test_long_names_are_cut_before_they_are_searched_and_shown() -> None:
    node = InMemoryNode({"temps": 1})
    client = pair(node, "alice", "c" * 10_000)
    client.receiver("temps", name="n" * 10_000, group="g" * 200)
    (one,) = listed(node)
    assert one["container"] == "c" * SHOWN_MAX
    (link,) = body_of(ask(node, "connection", "READ", one["name"]))["attached"]
    assert (link["name"], link["group"]) == ("n" * SHOWN_MAX, "g" * SHOWN_MAX)
    for letter in "cng":
        assert len(listed(node, search=letter * SHOWN_MAX)) == 1
        assert listed(node, search=letter * (SHOWN_MAX + 1)) == []


def test_a_list_is_ordered_before_it_is_divided_into_pages() -> None:
    node = InMemoryNode({"temps": 1})
    clients = [pair(node, user) for user in ("carol", "alice", "bob")]
    for count, client in zip((1, 3, 2), clients, strict=True):
        client.send(client.sender("temps"), *[proton.Message(body=b"x")] * count)
    assert [each["user"] for each in listed(node)] == ["carol", "alice", "bob"]
    assert [each["user"] for each in listed(node, sort="user")] == ["alice", "bob", "carol"]
    assert [each["user"] for each in listed(node, sort="events-in")] == ["alice", "bob", "carol"]
    first = body_of(ask(node, "connection", "QUERY", sort="bytes-in", count=2))
    assert [each["user"] for each in first["connections"]] == ["alice", "bob"]
    assert (first["next"], first["total"]) == (2, 3)
    assert set(SORTS) == set(names.CONNECTION_SORTS)
    for order in SORTS:
        assert len(listed(node, sort=order)) == 3


@pytest.mark.parametrize(
    "body", [{"sort": "colour"}, {"search": "x" * (TEXT_MAX + 1)}, {"search": 7}, {"search": "a\nb"}]
)
def test_a_bad_search_or_order_is_refused_with_the_remedy(body: dict[str, Any]) -> None:
    answer = ask(InMemoryNode(), "connection", "QUERY", **body)
    assert answer.status == 400
    assert "must be" in answer.description


@pytest.mark.parametrize("name", ["", "-", "1", "ffff-x", "ffff-²", "ffff-" + "9" * 5000])
def test_no_name_is_read_as_another_one(name: str) -> None:
    node = InMemoryNode()
    pair(node, "alice")
    assert ask(node, "connection", "READ", name).status == 404


def test_a_name_of_an_earlier_run_names_no_connection() -> None:
    node = InMemoryNode()
    pair(node, "alice")
    before = listed(node)[0]["name"]
    node.service.node.types[names.CONNECTION_TYPE] = ConnectionRequests(node.service).operations()
    found = ask(node, "connection", "READ", before)
    # Two runs have the same prefix once in 65,536 times.
    assert found.status == 404 or listed(node)[0]["name"] == before


# -- many


class Many:
    """A service with any number of connections that have no links. `touched`: those that were looked at."""

    def __init__(self, count: int) -> None:
        node = InMemoryNode()
        pair(node, "alice")
        (one,) = node.service.connections
        self.touched: set[int] = set()
        self.limits, self.commits, self.monotonic_ms = node.service.limits, node.service.commits, node.clock
        self.connections = [_Numbered(one, number, self.touched) for number in range(count)]


class _Numbered:
    def __init__(self, one: Any, number: int, touched: set[int]) -> None:
        self._one, self.number, self._touched = one, number, touched

    def __getattr__(self, name: str) -> Any:
        self._touched.add(self.number)
        return getattr(self._one, name)


class Wide(Many):
    """A service whose connections have many links. `uses`: how often each attribute of a link was read."""

    def __init__(self, count: int, links: int) -> None:
        super().__init__(count)
        self.uses: Counter[str] = Counter()
        node = InMemoryNode({"temps": 1})
        client = pair(node, "alice")
        client.sender("temps")
        (one,) = node.service.connections
        assert one.dispatch is not None
        (link,) = one.dispatch.links.values()
        dispatch = SimpleNamespace(
            links={number: _Used(link, self.uses) for number in range(links)},
            container="meter",
            opened=True,
            closed=False,
            traffic=one.dispatch.traffic,
        )
        for each in self.connections:
            cast("Any", each).dispatch = dispatch


class _Used:
    def __init__(self, one: Any, uses: Counter[str]) -> None:
        self._one, self._uses = one, uses

    def __getattr__(self, name: str) -> Any:
        self._uses[name] += 1
        return getattr(self._one, name)


@pytest.mark.parametrize(
    ("count", "links", "body", "attribute", "most"),
    [
        # The text is not found: all names are compared. A page has few connections with so many links. Of
        # each link, a summary reads the credit and the unsettled deliveries.
        (2, 1024, {"search": "nothing"}, "name", LOOKS_A_STEP),
        (20, 300, {"sort": "events-in"}, "events", LOOKS_A_STEP + 300),
        (1, 1024, {}, "pointer", 2 * SUMMED_A_STEP),
    ],
)
def test_connections_with_many_links_are_listed_in_short_steps(
    count: int, links: int, body: dict[str, Any], attribute: str, most: int
) -> None:
    service = Wide(count, links)
    query = Request("QUERY", "connection", "", cast("Any", body), None, None)
    steps = ConnectionRequests(cast("Any", service)).query(query)
    reads: list[int] = []
    while True:
        service.uses.clear()
        try:
            next(steps)
        except StopIteration:
            break
        finally:
            reads.append(service.uses[attribute])
    assert sum(reads) >= count * links
    assert max(reads) <= most


@pytest.mark.parametrize("body", [{}, {"search": "alice"}, {"sort": "bytes-in-per-second"}])
@pytest.mark.parametrize("user", [None, "alice"])
def test_a_list_of_ten_thousand_is_computed_in_short_steps(user: str | None, body: dict[str, Any]) -> None:
    service = Many(10_000)
    permissions = EVERYTHING if user is None else Access([rule("bob", "*", "manage")]).of(Identity(user))
    query = Request("QUERY", "connection", "", cast("Any", body), None, None, permissions=permissions)
    steps, most = ConnectionRequests(cast("Any", service)).query(query), 0
    while True:
        service.touched.clear()
        try:
            next(steps)
        except StopIteration as ended:
            answer: Answer = ended.value
            break
        most = max(most, len(service.touched))
    assert body_of(answer)["total"] == 10_000
    assert most <= LOOKS_A_STEP


def test_a_connection_that_ends_between_two_steps_is_left_out() -> None:
    node = InMemoryNode({"temps": 1})
    client = pair(node, "alice")
    for _ in range(3 * LINKS_A_STEP):
        client.receiver("temps")
    request = Request("READ", "connection", listed(node)[0]["name"], {}, None, None)
    steps = node.service.node.managing(request)
    next(steps)
    node.disconnect(client)
    body = body_of(finish(steps))
    assert len(body["attached"]) == LINKS_A_STEP
    assert body["links"] == 0
