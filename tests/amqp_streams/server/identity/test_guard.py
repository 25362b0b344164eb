"""The offered mechanisms: for every combination of client and configuration."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
import structlog

from amqp_streams.config import NodeSettings
from amqp_streams.server.identity.guard import Guard, Login
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.wire.security.mechanisms import Failure, ScramAlgorithm, Success, VerifyToken
from amqp_streams.wire.security.saslprep import saslprep
from tests.amqp_streams.server.doors import CHEAP
from tests.amqp_streams.server.issuer import NOW_MS, KeyFolder, jwk, token

TLS = {"certificate": "c.pem", "key": "k.pem", "client_ca": "ca.pem"}
RULES = [{"name": "cn", "pattern": "d-(.+)", "user": "{1}"}]
CERTIFICATE = {"subject": ((("commonName", "d-7"),),)}


class Around:
    """A loop and clocks that stand still."""

    def __init__(self) -> None:
        self.time_ms = 0

    def on_loop(self, call: Callable[[], None]) -> None:
        call()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        raise AssertionError

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return self.time_ms


class Channel:
    """The parts of a channel that the guard reads."""

    peer = "10.0.0.1:5"
    foreign = False

    def __init__(
        self, *, secure: bool = False, loopback: bool = False, certificate: dict[str, Any] | None = None
    ) -> None:
        self.secure, self.loopback, self.certificate = secure, loopback, certificate


def offered(guard: Guard, channel: Channel) -> list[str]:
    return list(guard.mechanisms(cast("ByteChannel", channel)))


@pytest.fixture
def users(tmp_path: Path) -> UsersFile:
    made = UsersFile.load(tmp_path / "users.json", hasher=CHEAP, scram_iterations=4096)
    made.add("ann", "secret")
    return made


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path).jwks(jwk("ES256"))


def guard_of(users: UsersFile | None, **settings: Any) -> Guard:
    made = NodeSettings.model_validate({"data_dir": "d", "tls": TLS} | settings)
    return Guard(made, Around(), executor=cast("Any", None), passwords=users, keys=users)


@pytest.mark.parametrize(("secure", "loopback", "openly"), list(product([False, True], repeat=3)))
@pytest.mark.parametrize("anonymous", ["loopback", "always", "never"])
def test_secrets_are_prompted_for_unseen_or_when_requested(
    users: UsersFile, keys: KeyFolder, *, secure: bool, loopback: bool, openly: bool, anonymous: str
) -> None:
    """Strongest first; all combinations."""
    guard = guard_of(users, anonymous=anonymous, plain_without_tls=openly, oauth=keys.oauth(), external=RULES)
    names = offered(
        guard, Channel(secure=secure, loopback=loopback, certificate=CERTIFICATE if secure else None)
    )
    expected = ["EXTERNAL"] if secure else []
    expected += ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    expected += ["OAUTHBEARER", "XOAUTH2", "PLAIN"] if secure or loopback or openly else []
    expected += ["ANONYMOUS"] if anonymous == "always" or (anonymous == "loopback" and loopback) else []
    assert names == expected


@pytest.mark.parametrize("foreign", [False, True])
def test_a_page_of_another_host_does_not_connect_without_a_login(users: UsersFile, foreign: bool) -> None:
    guard, channel = guard_of(users, anonymous="always"), Channel(secure=True)
    channel.foreign = foreign
    assert ("ANONYMOUS" in offered(guard, channel)) is not foreign
    assert guard.anonymous_allowed(cast("ByteChannel", channel)) is not foreign
    assert "PLAIN" in offered(guard, channel)


def test_external_is_offered_for_a_certificate_if_rules_exist(users: UsersFile) -> None:
    for certificate, rules, there in (
        (CERTIFICATE, RULES, True),
        (CERTIFICATE, [], False),
        (None, RULES, False),
        ({}, RULES, False),
    ):
        names = offered(guard_of(users, external=rules), Channel(secure=True, certificate=certificate))
        assert ("EXTERNAL" in names) is there


def test_scram_is_not_offered_before_a_user_can_use_it(tmp_path: Path) -> None:
    old = UsersFile.load(tmp_path / "old.json", hasher=CHEAP)
    assert offered(guard_of(old), Channel(secure=True)) == ["PLAIN"]
    assert offered(guard_of(None), Channel(loopback=True)) == ["ANONYMOUS"]


def test_a_user_who_is_never_admitted_is_not_asked_for_a_secret(tmp_path: Path) -> None:
    """Some clients send their password to every server that offers PLAIN."""
    guard = guard_of(None, anonymous="never")
    mechanisms = guard.mechanisms(cast("ByteChannel", Channel()))
    assert list(mechanisms) == ["EXTERNAL"]
    assert mechanisms["EXTERNAL"]().start(b"ann") == Failure(
        "the node does not accept a login on this connection"
    )


def test_a_certificate_that_no_rule_fits_is_refused(users: UsersFile) -> None:
    guard = guard_of(users, external=RULES)
    for name, step in (("d-7", Success("7")), ("other", Failure("no rule matches the certificate"))):
        channel = Channel(secure=True, certificate={"subject": ((("commonName", name),),)})
        assert guard.mechanisms(cast("ByteChannel", channel))["EXTERNAL"]().start(None) == step


def test_each_attempt_has_a_nonce_of_its_own(users: UsersFile) -> None:
    guard = guard_of(users)
    nonces = set()
    for _ in range(20):
        mechanism = guard.mechanisms(cast("ByteChannel", Channel()))["SCRAM-SHA-256"]()
        mechanism.start(b"n,,n=ann,r=abc")
        step = mechanism.answered(users.keys("ann", ScramAlgorithm.SHA_256))
        nonces.add(step.data.split(b",")[0])  # type: ignore[union-attr]  # it is the challenge
    assert len(nonces) == 20


def test_a_user_of_before_there_was_scram_is_named_once_in_the_log_with_what_to_do(users: UsersFile) -> None:
    users.add("old", "🙂")
    guard = guard_of(users)
    with structlog.testing.capture_logs() as lines:
        for name in ("ann", "old", "nobody", "old"):
            guard.find_keys(name, ScramAlgorithm.SHA_256)
    assert [(line["event"], line["user"]) for line in lines] == [("user_without_scram", "old")]
    assert "user add" in lines[0]["remedy"]


def test_tokens_are_checked_as_long_as_they_are_configured(users: UsersFile, keys: KeyFolder) -> None:
    guard = guard_of(users, oauth=keys.oauth())
    good = token()
    assert isinstance(guard.check_token(VerifyToken(good)), Success)
    assert guard.reload_tokens() is True
    guard.change(NodeSettings.model_validate({"data_dir": "d"}))
    assert guard.reload_tokens() is None
    assert isinstance(guard.check_token(VerifyToken(good)), Failure)
    assert "OAUTHBEARER" not in offered(guard, Channel(secure=True))


def test_lines_about_limited_logins_are_seldom_and_say_how_many_were_left_out(users: UsersFile) -> None:
    guard = guard_of(users)
    around = cast("Around", guard.around)
    with structlog.testing.capture_logs() as lines:
        for at_ms in (0, 10, 9_999, 10_000):
            around.time_ms = at_ms
            guard.note_limited("10.0.0.1:5", mechanism="PLAIN", user="x" * 1000, reason="too many")
    assert [line["left_out"] for line in lines] == [0, 2]
    assert len(lines[0]["user"]) == 64
    assert guard.counts == {("PLAIN", "limited"): 4}


def test_a_user_is_limited_by_whatever_name_it_is_called(users: UsersFile) -> None:
    guard = guard_of(users, limits={"user_login_failures": 2})
    with structlog.testing.capture_logs():
        for number, name in enumerate(("ann", "\uff41nn")):
            guard.note_failure(f"10.0.1.{number}:5", mechanism="PLAIN", user=name, reason="wrong")
    assert guard.limited("10.0.0.1:5", "ann")
    assert guard.limited("10.0.0.1:5", "an\u00adn")
    guard.note_success("10.0.0.9:5", Login("ann", mechanism="PLAIN"))
    assert not guard.limited("10.0.0.9:6", "\uff41nn")


def test_unknown_users_are_counted_like_known_ones_however_they_are_spelt(users: UsersFile) -> None:
    """Otherwise failures with several spellings of a name would reveal whether the user exists."""
    guard = guard_of(users, limits={"user_login_failures": 2})
    with structlog.testing.capture_logs():
        for number, name in enumerate(("zoe", "\uff5aoe")):
            guard.note_failure(f"10.0.1.{number}:5", mechanism="PLAIN", user=name, reason="wrong")
    assert guard.limited("10.0.0.1:5", "zo\u00ade")


def test_a_login_prepares_its_name_once(users: UsersFile, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []

    def counted(text: str, *, stored: bool = False) -> str:
        prepared.append(text)
        return saslprep(text, stored=stored)

    monkeypatch.setattr("amqp_streams.wire.security.saslprep.saslprep", counted)
    guard, name = guard_of(users), "\u00e4\ufdfa"
    guard.limited("10.0.0.1:5", name)
    guard.find_keys(name, ScramAlgorithm.SHA_256)
    with structlog.testing.capture_logs():
        guard.note_failure("10.0.0.1:5", mechanism="SCRAM-SHA-256", user=name, reason="wrong")
    assert prepared == [name]
