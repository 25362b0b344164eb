"""The users file: passwords are checked and never stored. The file is complete and private, and is read again
after a change.
"""

import json
import os
import stat
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import ConfigError
from amqp_streams.server.identity.users import PASSWORD_CHARACTERS_MAX, UsersFile, user_name
from amqp_streams.wire.security.mechanisms import Challenge, FindKeys, ScramAlgorithm, Success
from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX
from amqp_streams.wire.security.scram import ITERATIONS_MIN, ScramClient, ScramServer

# The default costs 50 ms a password on purpose; what is tested here does not depend on the cost.
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def load(path: Path) -> UsersFile:
    return UsersFile.load(path, hasher=CHEAP, scram_iterations=ITERATIONS_MIN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_a_user_has_the_password_it_was_given_last(path: Path) -> None:
    users = load(path)
    assert users.add("alice", "first") is True
    assert users.add("alice", "second") is False
    assert users.names == ["alice"]
    assert users.verify("alice", "second")
    assert not users.verify("alice", "first")
    assert not users.verify("alice", "")
    assert not users.verify("bob", "second")


def test_a_users_file_that_does_not_exist_admits_no_user(path: Path) -> None:
    users = load(path)
    assert users.names == []
    assert not users.verify("nobody", "nobody")
    assert not path.exists()


def test_a_removed_user_does_not_exist(path: Path) -> None:
    users = load(path)
    users.add("alice", "secret")
    assert users.remove("alice") is True
    assert users.remove("alice") is False
    assert not users.verify("alice", "secret")
    assert load(path).names == []


def test_the_file_is_private_and_holds_no_password(path: Path) -> None:
    load(path).add("alice", "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    assert json.loads(path.read_text())["version"] == 1


def test_nothing_but_the_file_and_its_lock_is_left_behind(path: Path) -> None:
    users = load(path)
    users.add("alice", "secret")
    users.add("bob", "secret")
    assert {entry.name for entry in path.parent.iterdir()} == {"users.json", ".users.json.lock"}


def test_a_change_by_another_process_is_seen_after_reload(path: Path) -> None:
    running, command = load(path), load(path)
    command.add("alice", "secret")
    assert not running.verify("alice", "secret")
    assert running.reload() is True
    assert running.verify("alice", "secret")
    assert running.reload() is False
    command.remove("alice")
    assert running.reload() is True
    assert not running.verify("alice", "secret")


def test_two_that_write_in_turns_lose_nothing(path: Path) -> None:
    one, other = load(path), load(path)
    one.add("alice", "a")
    other.add("bob", "b")
    one.add("carol", "c")
    assert load(path).names == ["alice", "bob", "carol"]


def test_a_file_that_became_broken_leaves_the_users_in_force(path: Path) -> None:
    users = load(path)
    users.add("alice", "secret")
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        users.reload()
    assert users.verify("alice", "secret")


def test_credentials_of_other_kinds_are_kept_until_the_password_changes(path: Path) -> None:
    users = load(path)
    users.add("alice", "secret")
    document = json.loads(path.read_text())
    document["users"]["alice"]["passkey"] = {"id": "c2FsdA=="}
    path.write_text(json.dumps(document))
    users.add("bob", "b")
    assert "passkey" in json.loads(path.read_text())["users"]["alice"]
    users.add("alice", "new")
    assert list(json.loads(path.read_text())["users"]["alice"]) == [
        "argon2",
        "scram-sha-256",
        "scram-sha-512",
    ]


@pytest.mark.parametrize("hashed", [None, 5, "", "plain text", "$argon2id$v=19$m=8,t=1,p=1$broken"])
def test_a_credential_that_is_not_a_hash_admits_no_user(path: Path, hashed: object) -> None:
    path.write_text(json.dumps({"version": 1, "users": {"alice": {"argon2": hashed}}}))
    path.chmod(0o600)
    users = load(path)
    for password in ("", "nobody", "plain text", str(hashed)):
        assert not users.verify("alice", password)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "does not have version 1"),
        ('{"version": 2, "users": {}}', "does not have version 1"),
        ('{"version": 1}', "object of objects"),
        ('{"version": 1, "users": {"alice": "secret"}}', "object of objects"),
        ('{"version": 1, "users": {"": {}}}', "not a valid user name"),
        ('{"version": 1, "users": {"a\\u0000b": {}}}', "not a valid user name"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_name(path: Path, text: str, words: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=words) as refused:
        load(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_may_read_is_refused(path: Path, mode: int) -> None:
    load(path).add("alice", "secret")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load(path)


def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        load(tmp_path / "missing" / "users.json").add("alice", "secret")
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path)


def test_a_failed_write_leaves_the_old_file_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = load(path)
    users.add("alice", "secret")
    before = path.read_bytes()

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match="No space left"):
        users.add("bob", "b")
    assert path.read_bytes() == before
    assert {entry.name for entry in path.parent.iterdir()} == {"users.json", ".users.json.lock"}
    assert users.names == ["alice"]


@pytest.mark.parametrize(
    "name", ["", "a\0b", "a\nb", "\x7f", "\x85", "x" * (NAME_CHARACTERS_MAX + 1), "\ud800"]
)
def test_a_name_with_control_characters_or_of_no_length_is_refused(path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid user name"):
        load(path).add(name, "secret")


@pytest.mark.parametrize("password", ["", "a\0b", "x" * (PASSWORD_CHARACTERS_MAX + 1), "\ud800"])
def test_a_password_that_no_client_could_send_is_refused(path: Path, password: str) -> None:
    users = load(path)
    with pytest.raises(ValueError):  # noqa: PT011  two kinds of words: the length, and no Unicode
        users.add("alice", password)
    assert not users.verify("alice", password)


def test_a_password_longer_than_allowed_is_wrong_even_if_it_begins_right(path: Path) -> None:
    users = load(path)
    users.add("alice", "x" * PASSWORD_CHARACTERS_MAX)
    assert users.verify("alice", "x" * PASSWORD_CHARACTERS_MAX)
    assert not users.verify("alice", "x" * (PASSWORD_CHARACTERS_MAX + 1))


def test_an_unknown_user_costs_as_much_work_as_a_known_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response time must not show which users exist, so each attempt verifies exactly one hash."""
    users = load(path)
    users.add("alice", "secret")
    verified: list[str] = []
    original = PasswordHasher.verify

    def counted(self: PasswordHasher, stored: str, password: str) -> bool:
        verified.append(stored.split("$")[3])
        return original(self, stored, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    for name, password in (("alice", "secret"), ("alice", "wrong"), ("bob", "secret")):
        users.verify(name, password)
    assert len(verified) == 3
    assert len(set(verified)) == 1  # the same parameters, so the same work


@given(st.text())
def test_a_name_is_taken_whole_or_refused(name: str) -> None:
    try:
        assert user_name(name) == name
    except ValueError as error:
        assert "not a valid user name" in str(error)  # noqa: PT017  either is right


# -- SCRAM keys


def proves(
    users: UsersFile, name: str, password: str, algorithm: ScramAlgorithm = ScramAlgorithm.SHA_256
) -> str | None:
    """The user that a client with this password logs in as."""
    client, server = ScramClient(algorithm, name, password, nonce="abc"), ScramServer(algorithm, nonce="def")
    assert isinstance(server.start(client.first()), FindKeys)
    challenge = server.answered(users.keys(server.claimed or "", algorithm))
    assert isinstance(challenge, Challenge)
    step = server.respond(client.final(challenge.data))
    return step.user if isinstance(step, Success) else None


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
def test_scram_knows_the_password_that_was_given_last(path: Path, algorithm: ScramAlgorithm) -> None:
    users = load(path)
    assert not users.offers(algorithm)
    users.add("alice", "first")
    users.add("alice", "second")
    assert users.offers(algorithm)
    assert users.has_keys("alice", algorithm)
    assert proves(users, "alice", "second", algorithm) == "alice"
    assert proves(load(path), "alice", "second", algorithm) == "alice"
    assert proves(users, "alice", "first", algorithm) is None
    assert proves(users, "bob", "second", algorithm) is None


def test_two_users_of_one_password_have_different_salts_and_keys(path: Path) -> None:
    users = load(path)
    users.add("alice", "secret")
    users.add("bob", "secret")
    parts = [
        part
        for name in users.names
        for one in [users.keys(name, ScramAlgorithm.SHA_512)]
        for part in (one.salt, one.stored_key)
    ]
    assert len(set(parts)) == 4


def test_an_unknown_user_is_answered_in_the_same_form_every_time_and_after_a_restart(
    path: Path,
) -> None:
    users = load(path)
    users.add("alice", "secret")
    for algorithm in ScramAlgorithm:
        real, lure = users.keys("alice", algorithm), users.keys("bob", algorithm)
        assert (len(real.salt), real.iterations, len(real.stored_key)) == (
            len(lure.salt),
            lure.iterations,
            len(lure.stored_key),
        )
        assert load(path).keys("bob", algorithm) == lure == users.keys("bob", algorithm)
        assert users.keys("carol", algorithm).salt != lure.salt
    UsersFile.load(path, hasher=CHEAP, scram_iterations=9000).add("bob", "other")
    users.reload()
    counts = {users.keys(f"user {number}", ScramAlgorithm.SHA_256).iterations for number in range(50)}
    assert counts == {4096, 9000}, "nobody is found out by an unusual count"


def test_a_user_from_before_scram_is_answered_like_an_unknown_user(path: Path) -> None:
    path.write_text(json.dumps({"version": 1, "users": {"old": {"argon2": CHEAP.hash("secret")}}}))
    path.chmod(0o600)
    users = load(path)
    assert users.verify("old", "secret")
    assert not users.has_keys("old", ScramAlgorithm.SHA_256)
    assert not users.offers(ScramAlgorithm.SHA_256), (
        "clients that prefer SCRAM must not be led to what nobody has"
    )
    assert proves(users, "old", "secret") is None
    users.add("old", "secret")
    assert proves(users, "old", "secret") == "old"


@pytest.mark.parametrize("stored", [5, "SCRAM-SHA-256$1:x", "SCRAM-SHA-512$4096:QUFB$QUFB:QUFB", None])
def test_keys_that_cannot_be_are_refused_when_the_file_is_read(path: Path, stored: object) -> None:
    path.write_text(json.dumps({"version": 1, "users": {"alice": {"scram-sha-256": stored}}}))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="alice: not valid keys of SCRAM-SHA-256"):
        load(path)


def test_names_and_passwords_are_the_same_in_whatever_form_they_are_typed(path: Path) -> None:
    """SASLprep: another keyboard may produce other bytes for the same password."""
    users = load(path)
    users.add("Ⅸ", "pass wo\u0308rd")
    assert users.names == ["IX"]
    for name in ("IX", "Ⅸ", "I\u00adX"):
        assert users.called(name) == "IX"
        assert users.verify(name, "pass\u00a0wörd")
        assert proves(users, name, "pass wo\u0308rd") == "IX"
    assert users.add("IX", "new") is False
    assert users.remove("Ⅸ") is True
    assert users.called("IX") is None


def test_hashes_made_of_a_password_as_it_was_typed_stay_good(path: Path) -> None:
    path.write_text(json.dumps({"version": 1, "users": {"Ⅸ": {"argon2": CHEAP.hash("wo\u0308rd")}}}))
    path.chmod(0o600)
    users = load(path)
    assert users.verify("IX", "wo\u0308rd")
    assert users.called("IX") == "Ⅸ"
    assert not users.verify("IX", "word")


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "🙂 smile"), ("🙂", "secret"), ("alice", "tab\there")]
)
def test_a_password_that_saslprep_does_not_allow_is_for_plain_only(
    path: Path, name: str, password: str
) -> None:
    users = load(path)
    users.add(name, password)
    assert users.verify(name, password)
    assert not users.has_keys(name, ScramAlgorithm.SHA_256)
