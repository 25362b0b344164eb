"""`status`: a running node, a node without its admin listener, and no node."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams import __version__
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.processes import Node, serving


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    folder = tmp_path_factory.mktemp("node")
    ready = folder / "ready.json"
    words = ["--log", "temps:2", "--admin-listen", "127.0.0.1:0", "--ready-file", str(ready)]
    with serving(folder / "data", *words) as node:
        yield node, json.loads(ready.read_text())["admin"][0]


def test_a_ready_node_is_described(admin: tuple[Node, str]) -> None:
    node, address = admin
    node.run("send", "temps", stdin="a\nb\n")
    found = json.loads(node.run("status", "--admin", address, "--json").stdout)
    assert (found["up"], found["ready"], found["version"]) == (True, True, __version__)
    assert (found["logs"], found["partitions"], found["events"]) == (1, 2, 2)
    assert found["url"] == node.url
    assert 0 < found["disk_free_bytes"] <= found["disk_size_bytes"]
    lines = dict(line.split(":", 1) for line in node.lines("status", "--admin", address))
    assert lines["logs"].strip().startswith("1, with 2 partitions, 2 events, ")
    assert {name: lines[name].strip() for name in ("ready", "version")} == {
        "ready": "yes",
        "version": __version__,
    }


def test_an_administrator_needs_no_admin_address(admin: tuple[Node, str]) -> None:
    node, _ = admin
    found = json.loads(node.run("status", "--json").stdout)
    assert (found["up"], found["ready"], found["version"]) == (True, True, __version__)
    health = found["health"]
    assert health["disk"]["free_bytes"] > 0
    assert health["settings"]["data_dir"]["source"] == "--data-dir"
    assert health["limits"]["partitions"] == {"used": 2, "limit": 10_000}
    node.run("log", "create", "orders")
    again = json.loads(node.run("status", "--json").stdout)["health"]
    assert [(each["what"], each["name"]) for each in again["changes"]] == [("CREATE", "orders")]
    node.run("log", "delete", "orders", "--yes")


def test_a_user_who_does_not_administer_sees_whether_the_node_is_up(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[[access]]\nusers = ["anonymous"]\nlogs = ["temps"]\nallow = ["info", "manage"]\n')
    with serving(tmp_path / "data", "--config", str(config), "--log", "temps:2") as node:
        found = json.loads(node.run("status", "--json").stdout)
    assert (found["up"], found["partitions"]) == (True, 2)
    assert found.keys() & {"ready", "version", "health"} == set()


def test_warnings_are_shown_with_their_remedies(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("[limits]\npartitions = 2\n")
    with serving(tmp_path / "data", "--config", str(config), "--log", "temps:2") as node:
        text = node.run("status").stdout
        (warning,) = json.loads(node.run("status", "--json").stdout)["health"]["warnings"]
    assert "error: partitions: 2 of 2 are in use.\n  remedy: delete logs, or raise limits.partitions" in text
    assert (warning["code"], warning["is_error"]) == ("limit-partitions", True)


def test_a_wrong_admin_address_is_not_ready(admin: tuple[Node, str]) -> None:
    done = admin[0].run("status", "--admin", "127.0.0.1:1")
    assert done.returncode == 1
    assert "http://127.0.0.1:1 does not answer: connection refused. Is it the address of" in done.stdout
    assert admin[0].run("status", "--admin", "ftp://h").returncode == 2


def test_a_node_that_is_down_is_reported_with_the_reason(run: Run) -> None:
    done = run("status", "--url", "amqp://ann:secret@127.0.0.1:1", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["url"] == "amqp://127.0.0.1:1"
    assert not found["up"]
    assert "nothing listens there. Is a node running" in found["reason"]
    assert "no: amqp://127.0.0.1:1" in run("status", "--url", "amqp://127.0.0.1:1").stdout
