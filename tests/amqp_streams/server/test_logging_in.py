"""Every mechanism over real sockets and real TLS, with our client and Proton's: the user of each login, and
the lines in the log.
"""

import asyncio
import base64
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import proton
import pytest
import structlog
from proton.utils import BlockingConnection

from amqp_streams.authentication import ClientCertificates
from amqp_streams.client import AuthenticationError, ConnectError, connect
from amqp_streams.config import Limits, NodeSettings
from amqp_streams.server.reload import reload_settings
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from service_parts.logging_setup import configure
from service_parts.settings.choices import LogFormat, LogLevel
from tests.amqp_streams.server.doors import CHEAP, PASSWORD, Doors
from tests.amqp_streams.server.issuer import token
from tests.amqp_streams.server.peers import Authority

ANN = f"ann:{PASSWORD}"
WAYS = pytest.mark.parametrize("way", ["amqp", "amqps", "wss"])


@pytest.fixture
def doors(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Doors:
    monkeypatch.setattr("amqp_streams.server.identity.users.PasswordHasher", lambda: CHEAP)
    return Doors(tmp_path, authority)


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    """All log lines, of node and client, at the most detailed level."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure(LogFormat.TEXT, LogLevel.DEBUG, stream=stream)
    yield stream
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@WAYS
@pytest.mark.parametrize(
    ("user", "sasl", "inside"),
    [
        (ANN, {}, ("ann", "SCRAM-SHA-512")),
        (ANN, {"mechanisms": ("SCRAM-SHA-256",)}, ("ann", "SCRAM-SHA-256")),
        (ANN, {"mechanisms": ("PLAIN",)}, ("ann", "PLAIN")),
        ("", {"token": token(sub="tom")}, ("tom", "OAUTHBEARER")),
        ("tom", {"token": token(sub="tom"), "mechanisms": ("XOAUTH2",)}, ("tom", "XOAUTH2")),
    ],
)
async def test_our_client_gets_in_by_every_mechanism_and_every_way(
    doors: Doors, way: str, user: str, sasl: dict[str, Any], inside: tuple[str, str]
) -> None:
    async with doors.open(), doors.client(way, user, **sasl) as client:
        assert len((await client.info("temps")).partitions) == 1
        assert doors.inside == [inside]


@pytest.mark.parametrize("way", ["amqps", "wss"])
async def test_a_certificate_logs_its_user_in(doors: Doors, way: str) -> None:
    async with doors.open():
        async with doors.client(way, certificate="device-t7") as client:
            assert len((await client.info("temps")).partitions) == 1
            assert doors.inside == [("t7", "EXTERNAL")]
        async with doors.client(way, "t7", certificate="device-t7") as client:
            assert doors.inside[-1] == ("t7", "EXTERNAL")
        with pytest.raises(AuthenticationError, match="does not accept the user of the client certificate"):
            await doors.client(way, certificate="printer").connect()
        with pytest.raises(AuthenticationError, match="does not accept the user of the client certificate"):
            await doors.client(way, "t8", certificate="device-t7").connect()


async def test_a_certificate_may_be_shown_in_addition_to_a_password(doors: Doors) -> None:
    async with doors.open(), doors.client("amqps", ANN, certificate="device-t7"):
        assert doors.inside == [("ann", "SCRAM-SHA-512")]


async def test_a_certificate_of_another_authority_does_not_count(doors: Doors, tmp_path: Path) -> None:
    (folder := tmp_path / "other").mkdir()
    other = Doors(folder, Authority(folder))
    async with doors.open():
        other.server = doors.server
        tls = replace(
            doors.shows("device-t7"),
            **{name: getattr(other.shows("device-t7"), name) for name in ("certificate_file", "key_file")},
        )
        with pytest.raises(ConnectError):
            await connect(doors.url("amqps"), tls=tls).connect()
        assert doors.inside == []


async def test_required_certificates_keep_others_out_before_amqp(doors: Doors) -> None:
    required = doors.settings["tls"].model_copy(update={"client_certificates": ClientCertificates.REQUIRED})
    async with doors.open(tls=required):
        with pytest.raises(ConnectError):
            await doors.client("amqps", ANN).connect()
        async with doors.client("amqps", certificate="device-t7"):
            assert doors.inside == [("t7", "EXTERNAL")]


# -- the log


def secrets_of(doors: Doors) -> set[str]:
    """Return the texts that must never be logged: the password and its stored form, as text, base64
    and hex.
    """
    kept = json.loads(doors.users.read_text())
    keys = [kept["users"]["ann"][algorithm.lower()].split("$")[2] for algorithm in ScramAlgorithm]
    told = {
        PASSWORD,
        kept["salt_key"],
        kept["users"]["ann"]["argon2"],
        *(part for pair in keys for part in pair.split(":")),
    }
    return told | {
        base64.b64encode(PASSWORD.encode()).decode(),
        PASSWORD.encode().hex(),
        PASSWORD.encode().hex(" "),
    }


GOOD, BAD, OLD = token(sub="tom"), token(sub="tom", aud="another"), token(sub="tom", exp=5)


@pytest.mark.parametrize(
    ("user", "sasl", "good"),
    [
        *((ANN, {"mechanisms": (name,)}, True) for name in (*ScramAlgorithm, "PLAIN")),
        *((f"ann:{PASSWORD}2", {"mechanisms": (name,)}, False) for name in (*ScramAlgorithm, "PLAIN")),
        *((f"nobody:{PASSWORD}", {"mechanisms": (name,)}, False) for name in (*ScramAlgorithm, "PLAIN")),
        *(
            ("", {"token": shown, "mechanisms": (name,)}, shown == GOOD)
            for name in ("OAUTHBEARER", "XOAUTH2")
            for shown in (GOOD, BAD, OLD)
        ),
    ],
)
async def test_no_secret_is_ever_shown(
    doors: Doors, told: io.StringIO, user: str, sasl: dict[str, Any], good: bool
) -> None:
    secrets = secrets_of(doors) | {
        part for shown in (GOOD, BAD, OLD) for part in (shown, *shown.split(".")[1:])
    }
    async with doors.open():
        client = doors.client("wss", user, **sasl)
        if good:
            async with client:
                await client.info("temps")
        else:
            with pytest.raises(AuthenticationError) as caught:
                await client.connect()
            assert not [secret for secret in secrets if secret in str(caught.value)]
        mechanism = sasl["mechanisms"][0]
        assert doors.counts == {(mechanism, "ok" if good else "failed"): 1}
    text = told.getvalue()
    assert ("authenticated" if good else "login_failed") in text, "or nothing was looked at"
    assert mechanism in text
    assert not [secret for secret in secrets if secret in text]


async def test_a_failed_login_is_logged_with_user_mechanism_address_and_reason(doors: Doors) -> None:
    with structlog.testing.capture_logs() as lines:
        async with doors.open():
            for user, sasl in (("ann:x", {}), ("bob:x", {"mechanisms": ("PLAIN",)}), ("", {"token": OLD})):
                with pytest.raises(AuthenticationError):
                    await doors.client("amqps", user, **sasl).connect()
    failed = [line for line in lines if line["event"] == "login_failed"]
    assert [(line["user"], line["mechanism"], line["reason"], line["log_level"]) for line in failed] == [
        ("ann", "SCRAM-SHA-512", "wrong user or password", "warning"),
        ("bob", "PLAIN", "wrong user or password", "warning"),
        ("", "OAUTHBEARER", "token: it has expired", "warning"),
    ]
    figures = (await doors.server._metrics.text()).decode()  # type: ignore[union-attr]  # it ran
    assert 'amqp_streams_logins_total{mechanism="PLAIN",result="failed"} 1.0' in figures
    assert all(line["peer"].startswith("127.0.0.1:") for line in failed)


# -- time


async def test_a_connection_ends_with_its_token_and_continues_with_the_next(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets a new token, and no event is lost. A token that is not renewed ends the connection."""
    asked: list[str] = []

    def fresh() -> str:
        asked.append(token(sub=f"tom-{len(asked)}"))
        return asked[-1]

    async with doors.open(), doors.client("amqps", token=fresh) as client:
        service = doors.server.service  # type: ignore[union-attr]  # it runs
        assert service is not None
        async with client.producer("temps") as producer:
            await producer.send(b"\x00\x53\x75\xa0\x01a")
            assert doors.inside == [("tom-0", "OAUTHBEARER")]
            monkeypatch.setattr(service, "now_ms", lambda: 4_000_000_000_000)
            for connection in tuple(service.connections):
                connection.tick(service.monotonic_ms())
            monkeypatch.undo()
            await producer.send(b"\x00\x53\x75\xa0\x01b")
            assert ("tom-1", "OAUTHBEARER") in doors.inside
            assert len(asked) == 2


@pytest.mark.parametrize("name", ["OAUTHBEARER", "XOAUTH2"])
async def test_a_valid_token_is_accepted_though_many_logins_of_its_address_failed(
    doors: Doors, name: str
) -> None:
    """Otherwise one program with an expired token would lock out all others with its address."""
    limits = Limits(login_failures=3, login_interval_ms=3_600_000)
    async with doors.open(limits=limits):
        for _ in range(3):
            with pytest.raises(AuthenticationError, match="the peer refused the token"):
                await doors.client("amqps", token=OLD, mechanisms=(name,)).connect()
        with pytest.raises(ConnectError, match="try again later"):
            await doors.client("amqps", token=OLD, mechanisms=(name,)).connect()
        async with doors.client("amqps", token=GOOD, mechanisms=(name,)):
            assert doors.inside == [("tom", name)]


async def test_keys_and_rules_are_read_again(doors: Doors) -> None:
    """A file that is not valid keeps the former keys. A valid one adds the issuer's new key and removes the
    former one.
    """
    async with doors.open():
        guard = doors.server._guard  # type: ignore[union-attr]  # it runs
        assert guard is not None
        (doors.folder / "jwks.json").write_text("{")
        assert guard.reload_tokens() is False
        async with doors.client("amqps", token=GOOD):
            pass
        doors.keys.jwks(
            {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")}
        )
        assert guard.reload_tokens() is True
        with pytest.raises(AuthenticationError, match="invalid_token"):
            await doors.client("amqps", token=GOOD).connect()


async def test_a_certificates_user_goes_when_the_rules_say_another(doors: Doors) -> None:
    async with doors.open(), doors.client("amqps", certificate="device-t7") as client:
        server = doors.server
        assert server is not None
        assert server.service is not None
        assert server._guard is not None
        rules = [{"name": "cn", "pattern": "device-(.+)", "user": "device/{1}"}]
        changed = NodeSettings.model_validate(doors.settings | {"external": rules})
        assert reload_settings(server.service, server._guard, lambda: changed)
        assert len((await client.info("temps")).partitions) == 1
        assert ("device/t7", "EXTERNAL") in doors.inside


# -- Proton's client


def by_proton(doors: Doors, certificate: str | None, options: dict[str, Any]) -> str:
    """The name of the node, as Proton's client saw it."""
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(doors.authority.ca))
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER)
    if certificate is not None:
        shown = doors.issue(certificate)
        domain.set_credentials(str(shown.certificate), str(shown.key), None)
    url = doors.url("amqps").replace("127.0.0.1", "localhost")
    connection = BlockingConnection(url, timeout=60, ssl_domain=domain, reconnect=False, **options)
    try:
        assert connection.conn is not None
        return str(connection.conn.remote_container)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("certificate", "options", "mechanism"),
    [
        (None, {"user": "ann", "password": PASSWORD, "allowed_mechs": "PLAIN"}, "PLAIN"),
        ("device-t7", {"allowed_mechs": "EXTERNAL"}, "EXTERNAL"),
    ],
)
async def test_protons_own_client_gets_in_by_password_and_by_certificate(
    doors: Doors, certificate: str | None, options: dict[str, Any], mechanism: str
) -> None:
    loop = asyncio.get_running_loop()
    async with doors.open():
        assert await loop.run_in_executor(None, by_proton, doors, certificate, options) == "amqp-streams"
        assert doors.counts == {(mechanism, "ok"): 1}


async def test_protons_own_client_is_refused_with_a_certificate_of_no_user(doors: Doors) -> None:
    loop = asyncio.get_running_loop()
    async with doors.open():
        with pytest.raises(proton.ConnectionException):
            await loop.run_in_executor(None, by_proton, doors, "printer", {"allowed_mechs": "EXTERNAL"})
        assert doors.counts == {("EXTERNAL", "failed"): 1}
