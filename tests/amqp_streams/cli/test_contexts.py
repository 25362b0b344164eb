"""`--context`: a command connects as a stored context says, and its secrets go to its own node only."""

import json
from pathlib import Path

import pytest

from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


@pytest.fixture
def prod(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A context with a password, which nothing has chosen yet."""
    monkeypatch.setenv("AMQP_STREAMS_CONTEXTS", str(tmp_path / "contexts.json"))
    (tmp_path / "secret").write_text("of-prod\n")
    (tmp_path / "ca.pem").write_text("")
    words = ["--user", "ann", "--password-file", str(tmp_path / "secret"), "--ca", str(tmp_path / "ca.pem")]
    assert run("context", "add", "prod", "--url", "amqps://prod", *words).exit_code == 0
    return "prod"


def test_a_context_has_the_options_of_a_connection(
    node: FakeNode, run: Run, prod: str, tmp_path: Path
) -> None:
    assert run("info", "temps", "--context", prod).exit_code == 0
    [endpoint] = node.endpoints
    assert (endpoint.url, endpoint.user, endpoint.password) == ("amqps://prod", "ann", "of-prod")
    assert endpoint.tls is not None
    assert endpoint.tls.ca_file == tmp_path / "ca.pem"


def test_variables_do_not_mix_with_a_context(node: FakeNode, run: Run, prod: str) -> None:
    variables = {"AMQP_STREAMS_URL": "amqp://dev", "AMQP_STREAMS_PASSWORD": "of-dev"}
    run("--context", prod, "info", "temps", environment=variables)
    run("info", "temps", environment=variables | {"AMQP_STREAMS_CONTEXT": prod})
    run("info", "temps", environment=variables)
    found = [(each.url, each.password) for each in node.endpoints]
    assert found == [("amqps://prod", "of-prod")] * 2 + [("amqp://dev", "of-dev")]


def test_a_chosen_context_counts_until_a_command_names_a_url(node: FakeNode, run: Run, prod: str) -> None:
    run("context", "use", prod)
    for words in (
        ["info", "temps"],
        ["info", "temps", "--url", "amqp://other"],
        ["--url", "amqp://other", "info", "temps"],
        ["info", "amqp://other/temps"],
        ["info", "temps", "--user", "bob"],
    ):
        assert run(*words).exit_code == 0
    assert [(each.url, each.user, each.password) for each in node.endpoints] == [
        ("amqps://prod", "ann", "of-prod"),
        ("amqp://other", None, None),
        ("amqp://other", None, None),
        ("amqp://other", None, None),
        ("amqps://prod", "bob", None),
    ]


def test_faults_of_contexts_are_errors_of_the_program(run: Run, prod: str) -> None:
    answer = run("info", "temps", "--context", "prd")
    assert answer.exit_code == 2
    assert answer.stderr.endswith("; did you mean 'prod'?\n")
    both = run("info", "temps", "--context", prod, "--url", "amqp://h", "--json")
    assert json.loads(both.stderr)["error"] == "--context and --url are alternatives: give one"
    failing = ["--url", "amqp://h", "--password-command", "false"]
    run("context", "add", "failing", *failing)
    assert run("info", "temps", "--context", "failing").stderr == (
        "amqp-streams: the command 'false' for the password of the context ended with 1\n"
    )


def test_a_token_of_a_context_is_sent(node: FakeNode, run: Run, prod: str) -> None:
    run("context", "add", "token", "--url", "amqps://t", "--token-command", "printf abc", "--insecure")
    run("info", "temps", "--context", "token")
    [endpoint] = node.endpoints
    assert endpoint.sasl is not None
    assert endpoint.tls is not None
    assert (endpoint.sasl.token, endpoint.tls.verify) == ("abc", False)
