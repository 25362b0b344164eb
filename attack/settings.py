"""The settings of the rooms: limits of the short and the long form, users, tokens, certificates.

`mallory` attacks, `nina` works beside; each has rights on its own logs and its own namespace only. `quentin`
has a quota as well; the token of `rita` is taken away. All log in with tokens (HS256), which cost the
node little.
"""

import ssl
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from amqp_streams.server.identity.users import UsersFile

ISSUER, AUDIENCE = "https://issuer.invalid", "attack"
MALLORY, NINA, QUENTIN, OPERATOR, RITA = "mallory", "nina", "quentin", "olga", "rita"
PASSWORD_USER, PASSWORD = "petra", "correct horse"
_KEY: Final = ec.generate_private_key(ec.SECP256R1())

TIMES: Final[Mapping[str, int]] = {
    "unauthenticated_ms": 4000,
    "idle_timeout_ms": 3000,
    "drain_ms": 1000,
    "login_interval_ms": 9000,
}
SMALL: Final[Mapping[str, int]] = {
    "connections": 60,
    "sessions": 8,
    "links": 40,
    "partitions": 300,
    "groups": 20,
    "cursors": 40,
    "cursor_positions": 2000,
    "link_partitions": 4000,
    "producers": 10,
    "group_waiting": 20,
    "message_bytes": 1 << 20,
    "unsettled": 200,
    "credit": 100,
    "pending_bytes": 4 << 20,
    "connection_pending_bytes": 64 << 10,
    "password_checks": 6,
    "user_login_failures": 5,
}
"""Limits of the short form: reached with few steps."""
FULL: Final[Mapping[str, int]] = {
    "cursors": 2000,
    "cursor_positions": 400_000,
    "link_partitions": 1 << 20,
    "idle_timeout_ms": 20_000,
}
"""Limits of the long form that are not the defaults: reaching those would take minutes."""
QUOTA: Final[Mapping[str, int]] = {"connections": 10, "links": 20, "bytes_in": 200_000, "bytes_out": 200_000}
GROUPS: Final[Mapping[str, int]] = {"wait_ms": 1500, "pause_ms": 200, "handover_ms": 1000}
GATEWAY_TIMES: Final[Mapping[str, float]] = {"request": 2.0, "idle": 3.0, "append": 10.0, "drain": 3.0}
GATEWAY_SMALL: Final[Mapping[str, float]] = {
    **GATEWAY_TIMES,
    "connections": 200,
    "pending_events": 1000,
    "pending": 4 << 20,
    "batch_events": 200,
}
SUBSCRIBERS: Final[Mapping[str, float]] = {"timeout": 2.0, "connect_timeout": 1.0}
SUBSCRIBERS_SMALL: Final[Mapping[str, float]] = {
    **SUBSCRIBERS,
    "in_flight": 16,
    "held": 64 << 10,
    "waiting": 20,
    "look_ahead": 64,
    "replies": 1 << 20,
    "connections": 64,
}


def token(secret: str, user: str, **changes: object) -> str:
    """A token of the issuer; `changes` to its claims."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": int(time.time()) + 3600, **changes}
    return jwt.encode(claims, secret, "HS256")


def signed_token(user: str, **changes: object) -> str:
    """A JWT that a gateway accepts; `changes` to its claims."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": int(time.time()) + 3600, **changes}
    return jwt.encode(claims, _KEY, "ES256")


def http_token(secret: str, user: str) -> str:
    """The gateway's token of a user."""
    return f"{user}-{secret}"


def write_node(folder: Path, secret: str, limits: Mapping[str, int]) -> Path:
    shared = folder / "secret"
    shared.write_text(secret)
    shared.chmod(0o600)
    users = folder / "users.json"
    _add_user(users)
    certificate, key = make_certificate(folder)
    config = folder / "node.toml"
    config.write_text(
        f'anonymous = "never"\nusers = "{users}"\n'
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'[oauth]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nsecret_file = "{shared}"\n'
        'algorithms = ["HS256"]\nleeway = "0s"\n'
        + _section("limits", limits)
        + _section("groups", GROUPS)
        + _section(f"quotas.{QUENTIN}", QUOTA)
        + "".join(_access(user, f"{user[0]}-*") for user in (MALLORY, NINA, QUENTIN))
        + _access(OPERATOR, "*")
    )
    return config


def _access(user: str, logs: str) -> str:
    return (
        f'[[access]]\nusers = ["{user}"]\nlogs = ["{logs}"]\nallow = ["send", "receive", "info", "manage"]\n'
    )


def _section(name: str, values: Mapping[str, float]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def write_gateway(
    folder: Path, secret: str, limits: Mapping[str, float], subscribers: Mapping[str, float], more: str
) -> Path:
    tokens = folder / "tokens.csv"
    tokens.write_text(
        "".join(f"{http_token(secret, user)},{user},{user}\n" for user in (MALLORY, NINA, OPERATOR, RITA))
    )
    tokens.chmod(0o600)
    config = folder / "gateway.toml"
    (folder / "jwt.pem").write_bytes(
        _KEY.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    config.write_text(
        f'tokens = "{tokens}"\n{more}'
        f'[jwt]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nkeys = "{folder / "jwt.pem"}"\n'
        + _section("limits", limits)
        + _section("subscribers", subscribers)
        + "".join(
            f'[[rules]]\nusers = ["{user}"]\nallow = ["read", "write", "send"]\n'
            f'namespaces = ["{namespace}"]\n'
            for user, namespace in ((MALLORY, "m"), (RITA, "m"), (NINA, "n"), (OPERATOR, "*"))
        )
    )
    return config


def _add_user(users: Path) -> None:
    UsersFile.load(users).add(PASSWORD_USER, PASSWORD)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += [
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        names,
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "cert.pem")
