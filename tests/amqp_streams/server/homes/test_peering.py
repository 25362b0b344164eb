"""Reports and answers between nodes, over real sockets on loopback."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from amqp_streams.homes.protocol import reports
from amqp_streams.homes.protocol.frames import Kind
from amqp_streams.server.homes import peering
from amqp_streams.server.homes.calling import STEADY_S, UNUSED_S, Call
from amqp_streams.server.homes.peering import CALLS_MAX
from tests.amqp_streams.server.homes.joined import (
    SECRET,
    Connect,
    Node,
    Start,
    answer,
    bodies,
    report,
    secret_file,
    until,
)
from tests.amqp_streams.server.peers import Authority

BOTH_LOOPS = True
OTHER = SECRET[::-1]


async def test_a_node_that_is_its_own_home_uses_no_socket(start: Start) -> None:
    node = await start("me")
    node.peers.send_report(node.peers.address, report("me"))
    assert node.reports == [], "messages come in a later iteration of the loop"
    await until(lambda: node.answers)
    assert node.reports == [report("me")]
    assert node.answers == [answer()]
    assert not node.peers._calls


async def test_another_node_with_the_same_address_is_named_after_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a restart, the records of the process before have the same address."""
    monkeypatch.setattr(peering, "TWIN_S", 0.2)
    node = await start("me")

    def said() -> bool:
        node.peers.send_report(node.peers.address, report("me"), "another")
        return bool(node.peers.problems)

    assert not said()
    await until(said)
    assert "set node.advertise to an address that only this node has" in node.peers.problems[0]
    assert node.reports == [], "it is not for this node"
    node.peers.send_report(node.peers.address, report("me"), "me")
    await until(lambda: node.answers)
    await until(lambda: not node.peers.problems)


async def test_a_report_reaches_the_home_at_another_node_and_the_answer_comes_back(start: Start) -> None:
    one, two = await start("one"), await start("two")
    two.peers.send_report(one.peers.address, report("two", links=2))
    await until(lambda: two.answers)
    assert one.reports == [report("two", links=2)]
    assert two.answers == [answer()]
    # Both are homes, each for the other.
    one.peers.send_report(two.peers.address, report("one", 7, bucket=15))
    await until(lambda: one.answers)
    assert one.answers == [answer(7, bucket=15)]
    assert one.peers.problems == two.peers.problems == ()


async def test_a_report_of_thousands_of_links_comes_in_parts(start: Start) -> None:
    one, two = await start("one"), await start("two")
    large = report("two", links=3000)
    assert len(list(reports.parts(large))) > 20
    two.peers.send_report(one.peers.address, large)
    await until(lambda: two.answers)
    assert one.reports == [large]


async def test_a_report_that_waits_is_replaced_by_the_next_of_its_bucket(start: Start) -> None:
    one, two = await start("one"), await start("two")
    for number in range(1, 1000):
        for bucket in range(3):
            two.peers.send_report(one.peers.address, report("two", number, bucket=bucket))
    assert two.peers._calls[one.peers.address].waiting == 3
    await until(lambda: len(two.answers) >= 3)
    assert [each.number for each in one.reports] == [999] * 3
    assert {each.bucket for each in one.reports} == {0, 1, 2}


async def test_a_home_that_stops_is_not_a_problem_until_it_is_not_reached_again(start: Start) -> None:
    home, node = await start("home"), await start("node")
    address = home.peers.address
    with capture_logs() as lines:
        node.peers.send_report(address, report("node"))
        await until(lambda: node.answers)
        call = node.peers._calls[address]
        call._opened_at -= STEADY_S + 1
        await home.peers.close()
        await until(lambda: call._connection is None)
        assert node.peers.problems == ()
        node.peers.send_report(address, report("node", 2))
        await until(lambda: node.peers.problems)
        await start("again", listen=address)
        await until(lambda: len(node.answers) == 2, node.peers.tick)
        call._opened_at -= STEADY_S + 1
        call.tick(0.0)
    events = [line["event"] for line in lines if line.get("address") == address]
    events.remove("listening_for_nodes")
    assert events == ["node_reached", "node_lost", "node_not_reached", "node_reached"]


async def test_a_node_that_closes_each_connection_at_once_is_logged_once(start: Start) -> None:
    home, node = await start("home"), await start("node")
    home.fails = True
    with capture_logs() as lines:
        for number in range(1, 4):
            node.peers.send_report(home.peers.address, report("node", number))
            call = node.peers._calls[home.peers.address]
            await until(partial(_is_lost, call))
            call._retry_at = 0
    events = [line["event"] for line in lines if line.get("address") == home.peers.address]
    assert events == ["node_reached", "node_not_reached"]


def _is_lost(call: Call) -> bool:
    return call._connection is None and call._task is None


async def test_a_home_that_starts_later_is_found(start: Start) -> None:
    one, two = await start("one"), await start("two")
    address = one.peers.address
    await one.peers.close()
    two.peers.send_report(address, report("two"))
    await until(lambda: two.peers.problems)
    assert "is not reached: " in two.peers.problems[0]
    again = await start("again", listen=address)
    await until(lambda: two.answers, two.peers.tick)
    assert again.reports == [report("two")]
    call = two.peers._calls[address]
    call._opened_at -= STEADY_S + 1
    call.tick(0.0)
    assert two.peers.problems == ()


async def test_a_node_that_connects_again_is_answered_on_its_new_connection(
    start: Start, connect: Connect
) -> None:
    node = await start("home")
    first, second = await connect(node.peers.address), await connect(node.peers.address)
    await first.prove("p")
    await until(lambda: "p" in node.peers._nodes)
    await second.prove("p")
    assert await first.frames() == []
    node.peers.send_answer("p", answer())
    frame = await second.frame()
    assert frame is not None
    assert frame.kind == Kind.ANSWER
    assert node.peers._admission.count == 1


async def test_an_answer_for_a_process_that_is_not_connected_is_lost(start: Start) -> None:
    node = await start("home")
    node.peers.send_answer("nobody", answer())
    assert not node.reports
    assert not node.answers


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (bodies(Kind.REPORT, *reports.parts(report("another"))), "report.node must be the process"),
        (bodies(Kind.REPORT, b'{"node":"bad"}'), "report.bucket is missing"),
        (bodies(Kind.REPORT, b"[" * 100_000), "report is not valid JSON"),
        (bodies(Kind.ANSWER, b"{}"), "a frame answer cannot come from the other side"),
        (bodies(Kind.HELLO, b"{}"), "a frame hello cannot come after"),
        (b"\x7f\xff\xff\xff", "a frame has from 1 to 1048576 bytes"),
    ],
)
async def test_a_node_that_breaks_the_protocol_loses_its_connection_only(
    start: Start, connect: Connect, bad: bytes, words: str
) -> None:
    node, good = await start("home"), await start("good")
    stranger = await connect(node.peers.address)
    with capture_logs() as lines:
        await stranger.prove("bad")
        good.peers.send_report(node.peers.address, report("good"))
        await until(lambda: good.answers)
        stranger.send(bad)
        assert await stranger.frames() == []
        good.peers.send_report(node.peers.address, report("good", 2))
        await until(lambda: len(good.answers) == 2)
    refused = [line for line in lines if line["event"] == "node_refused"]
    assert len(refused) == 1
    assert words in refused[0]["reason"]
    assert [each.node for each in node.reports] == ["good", "good"]


async def test_kinds_of_a_later_version_are_ignored(start: Start, connect: Connect) -> None:
    node = await start("home")
    stranger = await connect(node.peers.address)
    stranger.send(b"\x00\x00\x00\x03\xc8hi")
    await stranger.prove("later")
    stranger.send(b"\x00\x00\x00\x03\xc8hi", bodies(Kind.REPORT, *reports.parts(report("later"))))
    await until(lambda: node.reports)


async def test_a_fault_of_the_home_costs_the_connection_of_the_report(start: Start) -> None:
    node, other = await start("home"), await start("other")
    node.fails = True
    with capture_logs() as lines:
        node.peers.send_report(node.peers.address, report("home"))
        other.peers.send_report(node.peers.address, report("other"))
        await until(lambda: other.peers.problems)
    assert {line["node"] for line in lines if line["event"] == "report_failed"} == {"home", "other"}
    node.fails = False
    other.peers.send_report(node.peers.address, report("other", 2))
    await until(lambda: other.answers, other.peers.tick)


async def test_another_secret_is_refused_on_both_sides_with_one_line_and_without_the_secret(
    start: Start, tmp_path: Path
) -> None:
    node, other = (
        await start("home"),
        await start("other", secret_file=secret_file(tmp_path, OTHER, name="o")),
    )
    with capture_logs() as lines:
        call = other.peers._new_call(node.peers.address)
        for number in range(1, 4):
            call._retry_at = 0
            call.send(report("other", number))
            await until(lambda: call._connection is None and call._task is None)
            assert call.problem is not None
        other.peers._calls[call.address] = call
    said = sorted(line["event"] for line in lines if line["log_level"] == "warning")
    assert said == ["node_not_reached", "node_refused"]
    assert all("different secrets" in line["reason"] for line in lines if "reason" in line)
    assert "different secrets" in node.peers.refused[0]
    assert "different secrets" in other.peers.problems[0]
    assert SECRET not in str(lines)
    assert OTHER not in str(lines)
    assert node.peers.problems == (), "what others do at the listener is not a problem of this node"
    assert node.reports == []


async def test_another_cluster_is_refused(start: Start) -> None:
    node, other = await start("home"), await start("other", cluster="c2")
    other.peers.send_report(node.peers.address, report("other"))
    await until(lambda: other.peers.problems and node.peers.refused)
    assert "different Kafka clusters or prefixes" in other.peers.problems[0]
    assert node.reports == []


async def test_a_secret_is_changed_while_all_nodes_run(start: Start, tmp_path: Path) -> None:
    """Both secrets on all nodes, then the new one first, then the new one alone: each step node by node."""
    one = await start("one", secret_file=secret_file(tmp_path, SECRET, name="one"))
    two = await start("two", secret_file=secret_file(tmp_path, SECRET, name="two"))
    for lines in ((SECRET, OTHER), (OTHER, SECRET), (OTHER,)):
        for changed in (one, two):
            secret_file(tmp_path, *lines, name=changed.me.process)
            assert changed.peers.reload()
            number = len(two.answers) + 1
            two.peers.send_report(one.peers.address, report("two", number))
            await until(partial(_has_answers, two, number))
            two.peers._end_call(one.peers.address)


def _has_answers(node: Node, number: int) -> bool:
    return len(node.answers) == number


async def test_a_secret_that_cannot_be_read_does_not_replace_the_one_in_use(
    start: Start, tmp_path: Path
) -> None:
    one, two = await start("one"), await start("two")
    (tmp_path / "secret").write_text("short\n")
    with capture_logs() as lines:
        assert not one.peers.reload()
    assert lines[0]["event"] == "node_credentials_not_reloaded"
    two.peers.send_report(one.peers.address, report("two"))
    await until(lambda: two.answers)


async def test_certificates_of_one_authority_are_enough(start: Start, authority: Authority) -> None:
    files = authority.issue("peer")
    tls = {"certificate": files.certificate, "key": files.key, "ca": authority.ca, "secret_file": None}
    one, two = await start("one", **tls), await start("two", **tls)
    two.peers.send_report(one.peers.address, report("two", links=3000))
    await until(lambda: two.answers)


async def test_certificates_can_have_one_name_for_all_nodes(start: Start, authority: Authority) -> None:
    """So an address need not be in a certificate, and a certificate without the name is refused."""
    files = authority.issue("peer", names="DNS:nodes.example")
    tls = {"certificate": files.certificate, "key": files.key, "ca": authority.ca, "secret_file": None}
    named = {**tls, "certificate_name": "nodes.example"}
    one, two = await start("one", **named), await start("two", **named)
    two.peers.send_report(one.peers.address, report("two"))
    await until(lambda: two.answers)
    for node in (
        await start("three", **tls),
        await start("four", **{**tls, "certificate_name": "other.example"}),
    ):
        node.peers.send_report(one.peers.address, report(node.me.process))
        await until(lambda: node.peers.problems)  # noqa: B023
        assert "verify failed" in node.peers.problems[0]


async def test_a_secret_is_proved_within_tls(start: Start, authority: Authority) -> None:
    files = authority.issue("peer")
    tls = {"certificate": files.certificate, "key": files.key, "ca": authority.ca}
    one, two, three = (
        await start("one", **tls),
        await start("two", **tls),
        await start("three", **tls, secret_file=None),
    )
    two.peers.send_report(one.peers.address, report("two"))
    await until(lambda: two.answers)
    three.peers.send_report(one.peers.address, report("three"))
    await until(lambda: three.peers.problems)
    assert "different secrets" in three.peers.problems[0]


async def test_a_certificate_of_another_authority_is_refused(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    files, others = authority.issue("peer"), Authority(tmp_path / "others")
    foreign = others.issue("foreign")
    one = await start("one", certificate=files.certificate, key=files.key, ca=authority.ca, secret_file=None)
    # It trusts the home, and the home does not trust it.
    two = await start(
        "two", certificate=foreign.certificate, key=foreign.key, ca=authority.ca, secret_file=None
    )
    # The home does not have a certificate that it trusts.
    three = await start("three", certificate=files.certificate, key=files.key, ca=others.ca, secret_file=None)
    for node in (two, three):
        node.peers.send_report(one.peers.address, report(node.me.process))
        await until(lambda: node.peers.problems)  # noqa: B023
    assert "self-signed certificate" in three.peers.problems[0] or "verify failed" in three.peers.problems[0]
    assert one.reports == []


async def test_a_node_without_tls_does_not_speak_to_other_machines(start: Start) -> None:
    """The address of a home comes from Kafka."""
    node = await start("node")
    for address in ("192.0.2.1:1", "a.example:1", "not an address"):
        node.peers.send_report(address, report("node"))
    await until(lambda: len(node.peers.problems) == 3)
    for address in ("a.example:1", "192.0.2.1:1"):
        node.peers.send_report(address, report("node", 2))
    assert "192.0.2.1 is not a loopback address" in node.peers.problems[0]
    assert "a.example is not a loopback address" in node.peers.problems[1]
    assert "not a valid address" in node.peers.problems[2]


async def test_calls_to_addresses_that_are_no_homes_any_more_end(start: Start) -> None:
    node, home = await start("node"), await start("home")
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers)
    for port in range(1, CALLS_MAX + 10):
        node.peers.send_report(f"127.0.0.1:{port}", report("node"))
    assert len(node.peers._calls) == CALLS_MAX
    for call in node.peers._calls.values():
        call.used_at -= UNUSED_S + 1
    node.peers._looked_at = None
    node.peers.tick()
    assert node.peers._calls == {}
    await until(lambda: not home.peers._nodes)


async def test_connections_that_prove_nothing_give_way_to_nodes(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peering, "CONNECTIONS_MAX", 5)
    home, node = await start("home"), await start("node")
    strangers = [await connect(home.peers.address) for _ in range(12)]
    await until(lambda: home.peers._admission.count == 5)
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers, node.peers.tick)
    assert home.peers._admission.count <= 5
    for stranger in strangers:
        await stranger.close()
    await until(lambda: home.peers._admission.count == 1)


async def test_a_node_that_stops_answers_the_last_reports(start: Start) -> None:
    home, node = await start("home"), await start("node")
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers)
    home.peers.stop()
    node.peers.send_report(home.peers.address, report("node", 2))
    await until(lambda: len(node.answers) == 2)
    await home.peers.close()
    node.peers.send_report(home.peers.address, report("node", 3))
    home.peers.send_report(node.peers.address, report("home"))
    await asyncio.sleep(0)
    assert len(home.reports) == 2
