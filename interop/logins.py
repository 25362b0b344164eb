"""Other people's clients log in: by every mechanism that a client has, with TLS and without, with good
credentials and bad ones.

`python -m interop.logins [NAME…]`; part of `make interop`. Ends with 1 if one of them comes in, or is kept
out, wrongly.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from amqp_streams.server.identity.users import UsersFile
from examples.node import NodeProcess
from interop.clients import MissingError, prepare_login

MECHANISMS: Final = {
    "proton": ("PLAIN", "EXTERNAL"),
    "rhea": ("PLAIN", "EXTERNAL", "XOAUTH2"),
    "go-amqp": ("PLAIN", "EXTERNAL", "XOAUTH2"),
    "protonj2": ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "EXTERNAL", "XOAUTH2"),
}
_USER, _PASSWORD, _ISSUER, _AUDIENCE = "ann", "with, comma=and space", "https://id.example.org", "streams"
_CONFIG: Final = """
anonymous = "never"
users = "users.json"
listen_tls = ["127.0.0.1:0"]
[tls]
certificate = "node.pem"
key = "node.key"
client_ca = "ca.pem"
client_certificates = "optional"
[[external]]
name = "cn"
pattern = "device-(.+)"
user = "{1}"
[oauth]
issuer = "https://id.example.org"
audience = "streams"
keys = "keys.json"
[limits]
login_failures = 1000
user_login_failures = 1000
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One login, and whether it has to be good."""

    mechanism: str
    environment: dict[str, str]
    good: bool


class Credentials:
    """Certificates, tokens and passwords, good and bad, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        self._openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=interop CA")
        for name, subject in (("node", "localhost"), ("good", "device-t7"), ("bad", "printer")):
            (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            self._openssl(
                "req",
                "-new",
                *key[:-2],
                "-keyout",
                f"{name}.key",
                "-out",
                f"{name}.csr",
                "-subj",
                f"/CN={subject}",
            )
            signed_by = (
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                f"{name}.ext",
            )
            self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed_by)
        # ES256 has it.
        public = jwt.get_algorithm_by_name("ES256").to_jwk(self._key.public_key(), as_dict=True)  # type: ignore[attr-defined]
        (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
        UsersFile.load(folder / "users.json").add(_USER, _PASSWORD)
        (folder / "node.toml").write_text(_CONFIG)

    def attempts(self, mechanism: str) -> list[Attempt]:
        """A good login and bad ones."""
        trusting = {"LOGIN_MECHANISM": mechanism, "LOGIN_CA": str(self._folder / "ca.pem")}
        if mechanism == "EXTERNAL":
            shown = [
                (
                    {
                        "LOGIN_CERT": str(self._folder / f"{name}.pem"),
                        "LOGIN_KEY": str(self._folder / f"{name}.key"),
                    },
                    name == "good",
                )
                for name in ("good", "bad")
            ]
        elif mechanism == "XOAUTH2":
            shown = [
                ({"LOGIN_USER": _USER, "LOGIN_TOKEN": self._token(hours)}, hours > 0) for hours in (1, -1)
            ]
        else:
            shown = [
                ({"LOGIN_USER": _USER, "LOGIN_PASSWORD": _PASSWORD}, True),
                ({"LOGIN_USER": _USER, "LOGIN_PASSWORD": "wrong"}, False),
                ({"LOGIN_USER": "nobody", "LOGIN_PASSWORD": _PASSWORD}, False),
            ]
        return [Attempt(mechanism, trusting | environment, good) for environment, good in shown]

    def _token(self, hours: int) -> str:
        claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": _USER, "exp": int(time.time()) + 3600 * hours}
        return jwt.encode(claims, self._key, "ES256")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


def main(names: Sequence[str]) -> int:
    """Check the clients named, or all."""
    failed = False
    with tempfile.TemporaryDirectory() as name:
        credentials = Credentials(Path(name))
        with NodeProcess(Path(name) / "run", "--config", str(Path(name) / "node.toml")) as node:
            for client in names or MECHANISMS:
                wrong = _wrong(client, credentials, node)
                failed = failed or wrong
            if failed:
                print(node.words, file=sys.stderr)
    return int(failed)


def _wrong(client: str, credentials: Credentials, node: NodeProcess) -> bool:
    """Whether one of its logins ended as it should not."""
    try:
        command = prepare_login(client)
    except MissingError as error:
        print(f"{client:10} skipped: {error}")
        return False
    plain, secure = (
        f"{scheme}://{address}"
        for scheme, address in zip(("amqp", "amqps"), node.addresses["amqp"], strict=True)
    )
    wrong = []
    for mechanism in MECHANISMS[client]:
        for url in (secure,) if mechanism == "EXTERNAL" else (plain, secure):
            for attempt in credentials.attempts(mechanism):
                said = command.run("login", url, environment=attempt.environment).strip()
                if said.startswith("in") is not attempt.good:
                    wrong.append(
                        f"{mechanism} at {url}: {said!r} where it should"
                        f" {'' if attempt.good else 'not '}be in"
                    )
    print(
        f"{client:10} "
        + (
            "; ".join(["FAILED", *wrong])
            if wrong
            else f"logs in by {', '.join(MECHANISMS[client])}, and not with bad ones"
        )
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
