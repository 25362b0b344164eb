"""The users file is changed from the command line. A password is prompted for twice, or read from stdin."""

import json
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from amqp_streams.server.identity.users import UsersFile
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from tests.amqp_streams.cli.conftest import Run


@pytest.fixture(autouse=True)
def _cheap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed with few rounds, but in the test that adds a user as people do."""
    if request.function is not test_a_user_is_added_with_a_password_typed_twice:
        cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        monkeypatch.setattr("amqp_streams.server.identity.users.PasswordHasher", lambda: cheap)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A users file that is not there yet."""
    return str(tmp_path / "users.json")


def test_a_user_is_added_with_a_password_typed_twice(run: Run, file: str) -> None:
    answer = run("user", "add", "alice", "--users", file, stdin="secret\nsecret\n")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "secret" not in answer.stderr
    assert answer.stderr.endswith("alice was added\n")
    assert UsersFile.load(Path(file)).verify("alice", "secret")


def test_a_password_typed_differently_the_second_time_is_asked_for_again(run: Run, file: str) -> None:
    run("user", "add", "alice", "--users", file, stdin="secret\nsecrte\nother\nother\n")
    assert UsersFile.load(Path(file)).verify("alice", "other")


def test_a_password_comes_on_stdin(run: Run, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqp_streams.cli.commands.users.password_from_stdin", lambda: "from stdin")
    assert run("user", "add", "alice", "--users", file, "--password-stdin").exit_code == 0
    assert UsersFile.load(Path(file)).verify("alice", "from stdin")


def test_users_are_listed_and_removed(run: Run, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    UsersFile.load(Path(file)).add("alice", "secret")
    monkeypatch.setenv("AMQP_STREAMS_USERS", file)
    assert [line.split() for line in run("user", "list").stdout.splitlines()] == [
        ["USER", "LOGIN"],
        ["alice", "SCRAM,", "PLAIN"],
    ]
    assert json.loads(run("user", "list", "--json").stdout) == {"users": ["alice"], "plain_only": []}
    assert run("user", "remove", "alice").exit_code == 0
    assert json.loads(run("user", "list", "--json").stdout) == {"users": [], "plain_only": []}


def test_a_password_that_scram_does_not_allow_is_reported_as_for_plain_only(run: Run, file: str) -> None:
    answer = run("user", "add", "alice", "--users", file, stdin="🙂\n🙂\n")
    assert answer.exit_code == 0
    assert "PLAIN only" in answer.stderr
    assert json.loads(run("user", "list", "--users", file, "--json").stdout)["plain_only"] == ["alice"]
    assert "PLAIN only" not in run("user", "add", "alice", "--users", file, stdin="x\nx\n").stderr


def test_the_rounds_of_hashing_are_chosen_within_bounds(run: Run, file: str) -> None:
    run("user", "add", "alice", "--users", file, "--scram-iterations", "5000", stdin="x\nx\n")
    assert UsersFile.load(Path(file)).keys("alice", ScramAlgorithm.SHA_256).iterations == 5000
    assert (
        run("user", "add", "bob", "--users", file, "--scram-iterations", "100", stdin="x\nx\n").exit_code == 2
    )


def test_removing_an_unknown_user_is_a_failure(run: Run, file: str) -> None:
    answer = run("user", "remove", "bob", "--users", file)
    assert answer.exit_code == 1
    assert "no user named 'bob'" in answer.stderr


def test_a_name_that_is_not_valid_is_a_usage_error(run: Run, file: str) -> None:
    assert run("user", "add", "a\nb", "--users", file, stdin="x\nx\n").exit_code == 2
    assert not Path(file).exists()


def test_the_file_has_to_be_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMQP_STREAMS_USERS", raising=False)
    answer = run("user", "list")
    assert answer.exit_code == 2
    assert "AMQP_STREAMS_USERS" in answer.stderr
