"""`connection`: the connections of a real node are listed, described and closed."""

import json
from collections.abc import Iterator

import pytest

from amqp_streams.cli.commands.connections import _facts, _question
from amqp_streams.client import ConnectionInfo, Event, blocking
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.test_completion import completed
from tests.amqp_streams.client.running import RunningNode


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path_factory.mktemp("node"), "--log=temps:20").start()
    yield node
    node.stop()


@pytest.fixture
def meter(running: RunningNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a connection with a producer and a consumer."""
    monkeypatch.setenv("AMQP_STREAMS_URL", running.url)
    with (
        blocking.connect(running.url, container_id="meter-7") as client,
        client.producer("temps") as producer,
        client.consumer("temps", group="billing"),
        client.consumer("temps"),
    ):
        producer.send(Event("x"))
        (one,) = client.management.list_connections(search="meter-7")
        yield one.name


def test_connections_are_listed_and_searched(meter: str, run: Run) -> None:
    lines = run("connection", "list", "--search", "METER").stdout.splitlines()
    assert lines[0].split()[:7] == ["CONNECTION", "USER", "PEER", "CONTAINER", "PROTOCOL", "SINCE", "LINKS"]
    assert [line.split()[0] for line in lines[1:]] == [meter]
    found = json.loads(run("connection", "list", "--json", "--sort", "container").stdout)["connections"]
    (one,) = [each for each in found if each["connection"] == meter]
    assert one["container"] == "meter-7"
    assert (one["total"]["events_in"], one["total"]["bytes_in"]) == (1, 6)
    refused = run("connection", "list", "--sort", "colour")
    assert refused.exit_code == 2
    assert "since-ms" in refused.stderr


def test_a_connection_is_described_with_its_links(meter: str, run: Run) -> None:
    text = run("connection", "describe", meter).stdout
    assert text.splitlines()[0].split() == ["connection:", meter]
    assert "0 and 19 more" in text
    assert "waits for:   nothing" in text
    links = json.loads(run("connection", "describe", meter, "--json").stdout)["links"]
    assert sorted((each["role"], each["group"] or "", each["partition_count"]) for each in links) == [
        ("consumer", "", 20),
        ("consumer", "billing", 1),
        ("producer", "", 0),
    ]


def test_a_connection_is_closed_after_a_yes(meter: str, run: Run) -> None:
    kept = run("connection", "close", meter, stdin="n\n")
    assert kept.exit_code == 1
    assert f"Close connection {meter} of an anonymous client from 127.0.0.1:" in kept.stderr
    assert run("connection", "describe", meter).exit_code == 0
    closed = run("connection", "close", meter, "--yes", "--json", "--reason", "a test")
    assert json.loads(closed.stdout) == {"closed": meter}
    assert run("connection", "describe", meter).exit_code == 1


def test_a_name_that_is_almost_right_gets_a_suggestion(meter: str, run: Run) -> None:
    for command in ("describe", "close"):
        answer = run("connection", command, f"{meter}0")
        assert answer.exit_code == 1
        assert f"no connection named '{meter}0': it may have ended; did you mean" in answer.stderr
    missing = run("connection", "describe", "nothing", "--json")
    assert json.loads(missing.stderr)["condition"] == "amqp:not-found"
    assert "see 'amqp-streams connection list'" in missing.stderr


def test_names_are_completed(meter: str) -> None:
    assert meter in completed("connection", "describe", meter[:4])
    assert completed("connection", "close", "nothing") == []


def test_no_text_of_a_client_acts_on_the_terminal() -> None:
    acting = "a\x1b[2J\x9b31m\u202e"
    one = ConnectionInfo("7f3a-12", user=acting, peer=acting, container=acting)
    for text in (_question(one), *(value for _, value in _facts(one))):
        assert text.isprintable()
    assert _question(one).count("\\x9b31m") == 2
