"""TLS contexts from files that work and files that do not."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from amqp_streams.authentication import ClientCertificates, TlsSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.listening.tls import TlsContext, server_context
from tests.amqp_streams.server.peers import Authority, openssl


@pytest.fixture(scope="module")
def good(authority: Authority) -> TlsSettings:
    return authority.issue("node")


def test_nothing_below_tls_1_2_and_nothing_without_forward_secrecy(good: TlsSettings) -> None:
    context = server_context(good)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    older = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older
    assert all(name.startswith("ECDHE") and ("GCM" in name or "POLY1305" in name) for name in older)


def test_a_client_authority_makes_client_certificates_obligatory(
    good: TlsSettings, authority: Authority
) -> None:
    assert (
        server_context(good.model_copy(update={"client_ca": authority.ca})).verify_mode is ssl.CERT_REQUIRED
    )


def test_client_certificates_may_be_left_to_the_clients(good: TlsSettings, authority: Authority) -> None:
    optional = good.model_copy(
        update={"client_ca": authority.ca, "client_certificates": ClientCertificates.OPTIONAL}
    )
    assert server_context(optional).verify_mode is ssl.CERT_OPTIONAL


def _missing(good: TlsSettings, folder: Path) -> TlsSettings:
    return good.model_copy(update={"certificate": folder / "nowhere.pem"})


def _a_folder(good: TlsSettings, folder: Path) -> TlsSettings:
    return good.model_copy(update={"key": folder})


def _no_pem(good: TlsSettings, folder: Path) -> TlsSettings:
    (folder / "cert.pem").write_text("hello")
    return good.model_copy(update={"certificate": folder / "cert.pem"})


def _exchanged(good: TlsSettings, folder: Path) -> TlsSettings:
    return TlsSettings(certificate=good.key, key=good.certificate)


def _anothers_key(good: TlsSettings, folder: Path) -> TlsSettings:
    return good.model_copy(update={"key": Authority(folder).issue("another").key})


def _encrypted(good: TlsSettings, folder: Path) -> TlsSettings:
    openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", folder / "locked.key")
    return good.model_copy(update={"key": folder / "locked.key"})


def _no_authority(good: TlsSettings, folder: Path) -> TlsSettings:
    (folder / "ca.pem").write_text("hello")
    return good.model_copy(update={"client_ca": folder / "ca.pem"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_missing, r"TLS certificate .*nowhere\.pem: No such file or directory"),
        (_a_folder, r"TLS key .*: Is a directory"),
        (_no_pem, r"TLS certificate .*cert\.pem with key .*: .*PEM"),
        (_exchanged, r"TLS certificate .*node\.key with key .*: .*PEM"),
        (_anothers_key, r"the key does not match the certificate"),
        (_encrypted, r"locked\.key is encrypted"),
        (_no_authority, r"TLS client CA .*ca\.pem: .*"),
    ],
)
def test_files_that_do_not_work_are_named_with_the_reason(
    good: TlsSettings, tmp_path: Path, spoil: Callable[[TlsSettings, Path], TlsSettings], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        server_context(spoil(good, tmp_path))


def test_a_reload_that_fails_keeps_the_context_and_says_why(good: TlsSettings, tmp_path: Path) -> None:
    files = TlsSettings(certificate=tmp_path / "tls.pem", key=tmp_path / "tls.key")
    files.certificate.write_bytes(good.certificate.read_bytes())
    files.key.write_bytes(good.key.read_bytes())
    tls = TlsContext(files)
    before, expires_at = tls.current(), tls.expires_at
    assert expires_at is not None
    files.key.write_text("half writ")
    with capture_logs() as lines:
        assert not tls.reload()
    assert (tls.current(), tls.expires_at) == (before, expires_at)
    assert [(line["event"], line["log_level"]) for line in lines] == [("tls_not_reloaded", "error")]
    assert "tls.key" in lines[0]["reason"]
    files.key.write_bytes(good.key.read_bytes())
    assert tls.reload()
    assert tls.current() is not before


def test_a_reload_notices_when_the_new_certificate_expires(good: TlsSettings, tmp_path: Path) -> None:
    files = TlsSettings(certificate=tmp_path / "tls.pem", key=tmp_path / "tls.key")
    for mine, issued in ((files.certificate, good.certificate), (files.key, good.key)):
        mine.write_bytes(issued.read_bytes())
    tls = TlsContext(files)
    before = tls.expires_at
    assert before is not None
    openssl(
        *("req", "-x509", "-key", files.key, "-subj", "/CN=renewed", "-days", "30", "-out", files.certificate)
    )
    assert tls.reload()
    assert tls.expires_at is not None
    assert tls.expires_at > before + 20 * 24 * 3600
