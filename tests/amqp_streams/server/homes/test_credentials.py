"""Secret and certificates of a node: files that work, and files that do not."""

import ssl
from pathlib import Path

import pytest

from amqp_streams.errors import ConfigError
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.credentials import (
    SECRET_BYTES_MAX,
    SECRET_CHARACTERS_MIN,
    SECRETS_MAX,
    load,
)
from tests.amqp_streams.server.peers import Authority

GOOD = "s" * SECRET_CHARACTERS_MIN


def settings(**given: object) -> PeeringSettings:
    return PeeringSettings.model_validate({"listen": "127.0.0.1:0", **given})


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("text", [GOOD, f"{GOOD}\n", f"\n  {GOOD}\r\n"])
def test_a_secret_is_one_line(tmp_path: Path, text: str) -> None:
    found = load(settings(secret_file=written(tmp_path, text)))
    assert found.secrets == (GOOD.encode(),)
    assert (found.listening, found.calling, found.certificate) == (None, None, b"")


def test_two_lines_are_two_secrets(tmp_path: Path) -> None:
    found = load(settings(secret_file=written(tmp_path, f"{GOOD}\n{GOOD[::-1]}2\n")))
    assert found.secrets == (GOOD.encode(), f"{GOOD}2".encode())


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("", 0o600, "must have one line"),
        (f"{GOOD}\n" * (SECRETS_MAX + 1), 0o600, "must have one line"),
        (GOOD + "x" * SECRET_BYTES_MAX, 0o600, "must have one line"),
        (GOOD[1:], 0o600, "fewer than 32 characters: make one with 'openssl rand -base64 32'"),
        (f"{GOOD}\nshort\n", 0o600, "fewer than 32 characters"),
        (GOOD, 0o640, "other users can access"),
        (GOOD, 0o604, "run chmod 600"),
    ],
)
def test_a_file_that_is_not_a_secret_is_refused_without_showing_it(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        load(settings(secret_file=written(tmp_path, text, mode)))
    assert "node.secret_file" in str(raised.value)
    assert "ssss" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.secret_file: .*/none cannot be read: No such file"):
        load(settings(secret_file=tmp_path / "none"))


def test_both_sides_of_tls_verify_the_other(authority: Authority) -> None:
    files = authority.issue("peer")
    found = load(settings(certificate=files.certificate, key=files.key, ca=authority.ca))
    assert found.listening is not None
    assert found.calling is not None
    assert found.listening.verify_mode is found.calling.verify_mode is ssl.CERT_REQUIRED
    assert found.calling.check_hostname
    for context in (found.listening, found.calling):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert found.certificate == ssl.PEM_cert_to_DER_cert(files.certificate.read_text())


def test_of_a_chain_the_first_certificate_is_the_node(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("peer")
    chain = tmp_path / "chain.pem"
    chain.write_text(f"a comment\n{files.certificate.read_text()}{authority.ca.read_text()}")
    found = load(settings(certificate=chain, key=files.key, ca=authority.ca))
    assert found.certificate == ssl.PEM_cert_to_DER_cert(files.certificate.read_text())


@pytest.mark.parametrize("missing", ["certificate", "key", "ca"])
def test_a_file_of_tls_that_cannot_be_used_is_named(
    authority: Authority, tmp_path: Path, missing: str
) -> None:
    files = authority.issue("peer")
    given = {
        "certificate": files.certificate,
        "key": files.key,
        "ca": authority.ca,
        missing: tmp_path / "none",
    }
    with pytest.raises(ConfigError, match="/none: No such file"):
        load(settings(**given))
