"""Commands find the intended node, and a password is never an argument."""

import json
from pathlib import Path

import click
import pytest

from amqp_streams.cli import main
from amqp_streams.cli.connection import URL_DEFAULT, Endpoint, run
from amqp_streams.client import TimedOutError, TlsOptions
from amqp_streams.errors import ConfigError
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


def test_the_name_of_a_log_is_at_the_node_of_the_url() -> None:
    endpoint = Endpoint("amqp://streams.example.org")
    assert endpoint.at("temps") == (endpoint, "temps")


@pytest.mark.parametrize(
    ("address", "url", "log"),
    [
        ("amqp://other:5673/temps", "amqp://other:5673", "temps"),
        ("amqps://user:pass@[::1]:5671/a.b", "amqps://user:pass@[::1]:5671", "a.b"),
        ("ws://other:8672/amqp/temps", "ws://other:8672/amqp", "temps"),
    ],
)
def test_a_url_with_a_path_is_a_node_and_a_log(address: str, url: str, log: str) -> None:
    tls = TlsOptions()
    assert Endpoint("amqp://first", "alice", "secret", tls).at(address) == (
        Endpoint(url, "alice", "secret", tls),
        log,
    )


@pytest.mark.parametrize("address", ["http://x/temps", "amqp://x", "amqp://x/", "amqp:///temps", "://"])
def test_a_url_without_a_log_or_of_another_protocol_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid address"):
        Endpoint().at(address)


@pytest.mark.parametrize("url", ["http://x", "amqp://", "amqp://x:99999"])
def test_an_invalid_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(ConfigError, match="AMQP_STREAMS_URL"):
        Endpoint(url).client()


def test_the_node_is_on_this_machine_unless_said_otherwise(node: FakeNode, run: Run) -> None:
    run("info", "temps")
    run("info", "temps", environment={"AMQP_STREAMS_URL": "amqp://from.environment"})
    run(
        "info",
        "temps",
        "--url",
        "amqp://from.flag",
        environment={"AMQP_STREAMS_URL": "amqp://from.environment"},
    )
    assert [endpoint.url for endpoint in node.endpoints] == [
        URL_DEFAULT,
        "amqp://from.environment",
        "amqp://from.flag",
    ]


def test_the_url_may_stand_before_the_command(node: FakeNode, run: Run) -> None:
    run(
        "--url", "amqp://before", "info", "temps", environment={"AMQP_STREAMS_URL": "amqp://from.environment"}
    )
    run("--url", "amqp://before", "info", "temps", "--url", "amqp://behind")
    run("--url", "amqp://before", "log", "list")
    assert [endpoint.url for endpoint in node.endpoints] == [
        "amqp://before",
        "amqp://behind",
        "amqp://before",
    ]


def test_help_lists_the_options_of_the_connection_apart(run: Run) -> None:
    own, _, connection = run("info", "--help").stdout.partition("Connection options:")
    assert "--json" in own
    assert "--url" not in own
    assert all(option in connection for option in ("--url", "--user", "--ca", "--insecure"))
    assert "Connection options:" in run("group", "reset", "--help").stdout


def test_a_log_that_is_misspelt_leads_to_the_one_that_was_meant(node: FakeNode, run: Run) -> None:
    for words in (
        ["info"],
        ["receive"],
        ["log", "describe"],
        ["log", "delete", "--yes"],
        ["group", "list"],
        ["cursor", "list"],
    ):
        answer = run(*words, "tmps")
        assert (answer.exit_code, answer.stderr) == (
            1,
            "amqp-streams: no log named 'tmps'; did you mean 'temps'?\n",
        ), words
    assert "or create it: amqp-streams log create invoices" in run("info", "invoices").stderr


def test_an_error_is_json_where_json_was_asked_for(node: FakeNode, run: Run) -> None:
    answer = run("info", "tmps", "--json")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert json.loads(answer.stderr) == {
        "error": "no log named 'tmps'; did you mean 'temps'?",
        "condition": "amqp:not-found",
    }


def test_a_node_that_does_not_answer_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def __aenter__(self) -> None:
            message = "connecting took longer than 10.0 s"
            raise TimedOutError(message)

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(Endpoint, "client", lambda *_, **__: Silent())
    answer = run("info", "temps", "--url", "amqp://alice:secret@silent")
    assert answer.stderr.startswith(
        "amqp-streams: amqp://silent:5672: no answer: connecting took longer than 10.0 s. Is that an AMQP"
        " port?"
    )


def test_user_and_password_come_from_the_environment(node: FakeNode, run: Run) -> None:
    run("info", "temps", environment={"AMQP_STREAMS_USER": "alice", "AMQP_STREAMS_PASSWORD": "secret"})
    assert (node.endpoints[0].user, node.endpoints[0].password) == ("alice", "secret")
    assert "secret" not in repr(node.endpoints[0])


def test_a_password_comes_from_stdin_when_asked_for(
    node: FakeNode, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqp_streams.cli.connection.password_from_stdin", lambda: "from stdin")
    run(
        "info",
        "temps",
        "--user",
        "alice",
        "--password-stdin",
        environment={"AMQP_STREAMS_PASSWORD": "from environment"},
    )
    assert node.endpoints[0].password == "from stdin"


def test_no_command_takes_a_password_as_an_argument() -> None:
    def flags(command: click.Command) -> set[str]:
        own = {flag for parameter in command.params for flag in parameter.opts}
        inner = (
            [
                command.get_command(click.Context(command), name)
                for name in command.list_commands(click.Context(command))
            ]
            if isinstance(command, click.Group)
            else []
        )
        return own.union(*(flags(one) for one in inner if one is not None))

    assert {flag for flag in flags(main) if "password" in flag} == {
        "--password-stdin",
        "--password-file",
        "--password-command",
        "--kafka-password-file",
    }
    # The last two choose which of the tokens of a provider is used.
    assert {flag for flag in flags(main) if "token" in flag} == {
        "--token-file",
        "--token-command",
        "--console-oidc-token",
        "--oidc-token",
    }


def test_tls_is_checked_unless_switched_off(node: FakeNode, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("")
    run("info", "temps", "--ca", str(file))
    run("info", "temps", "--insecure", "--cert", str(file), "--key-file", str(file))
    assert node.endpoints[0].tls == TlsOptions(ca_file=file)
    assert node.endpoints[1].tls == TlsOptions(certificate_file=file, key_file=file, verify=False)


def test_a_missing_certificate_is_a_usage_error(node: FakeNode, run: Run) -> None:
    answer = run("info", "temps", "--ca", "/nowhere")
    assert answer.exit_code == 2
    assert "--ca" in answer.stderr


def test_the_asynchronous_part_is_run_to_its_result() -> None:
    async def answer() -> int:
        return 42

    assert run(answer()) == 42


def test_a_token_comes_from_a_file_that_is_read_for_each_connection(
    node: FakeNode, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    run("info", "temps", "--token-file", str(file), environment={"AMQP_STREAMS_TOKEN": "from-environment"})
    (endpoint,) = node.endpoints
    assert endpoint.sasl is not None
    assert callable(endpoint.sasl.token)
    assert endpoint.sasl.token() == "first"
    file.write_text("second")
    assert endpoint.sasl.token() == "second"


def test_a_token_comes_from_the_environment_and_is_not_shown(node: FakeNode, run: Run) -> None:
    run("info", "temps", environment={"AMQP_STREAMS_TOKEN": "t.o.k"})
    run("info", "temps", environment={"AMQP_STREAMS_TOKEN": ""})
    assert [endpoint.sasl.token for endpoint in node.endpoints if endpoint.sasl] == ["t.o.k", None]
    assert "t.o.k" not in repr(node.endpoints[0])


def test_the_mechanism_and_the_risk_are_chosen(node: FakeNode, run: Run) -> None:
    run("info", "temps", "--sasl-mechanism", "plain", "--plain-without-tls")
    run("info", "temps")
    first, second = [endpoint.sasl for endpoint in node.endpoints]
    assert first is not None
    assert second is not None
    assert (first.mechanisms, first.plain_without_tls) == (("PLAIN",), True)
    assert (second.mechanisms, second.plain_without_tls) == (None, False)
