"""Certificate files that work, and files that do not, for each side that reads them."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.client.connection.stream import _context
from amqp_streams.client.options import TlsOptions
from knative_gateway.config import TlsSettings
from knative_gateway.dispatcher.posting.sending import SendSettings, tls_context
from knative_gateway.errors import ConfigError
from knative_gateway.http.listening import server_context
from service_parts.certificate_files import CertificateFileError, load_authorities, load_certificate
from tests.amqp_streams.server.peers import Authority, openssl

Use = Callable[[Path, Path], object]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def loaded(certificate: Path, key: Path) -> None:
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)


def by_listener(certificate: Path, key: Path) -> None:
    server_context(TlsSettings(certificate=certificate, key=key))


def by_sender(certificate: Path, key: Path) -> None:
    tls_context(SendSettings(certificate_file=certificate, key_file=key))


def by_client(certificate: Path, key: Path) -> None:
    _context(TlsOptions(certificate_file=certificate, key_file=key))


@pytest.mark.parametrize("use", [loaded, by_listener, by_sender, by_client])
def test_every_reader_names_the_file_and_never_asks_for_a_password(
    use: Use, authority: Authority, tmp_path: Path
) -> None:
    good = authority.issue("reader")
    locked, other = tmp_path / "locked.key", tmp_path / "other.key"
    openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    openssl("genpkey", "-algorithm", "ed25519", "-out", other)
    (tmp_path / "text").write_text("hello")
    use(good.certificate, good.key)
    for certificate, key, words in (
        (good.certificate, locked, "TLS key .*locked.key is encrypted: use a key without a password"),
        (good.certificate, other, "the key does not match the certificate"),
        (good.certificate, tmp_path / "text", "TLS certificate .* with key .*text: not in PEM format"),
        (tmp_path / "text", good.key, "TLS certificate .*text with key .*: not in PEM format"),
        (good.certificate, tmp_path / "none", "TLS key .*none: No such file or directory"),
        (tmp_path / "none", good.key, "TLS certificate .*none: No such file or directory"),
    ):
        with pytest.raises((CertificateFileError, ConfigError), match=words):
            use(certificate, key)


def test_the_key_may_be_in_the_file_of_the_certificate(authority: Authority, tmp_path: Path) -> None:
    good = authority.issue("both")
    both = tmp_path / "both.pem"
    both.write_bytes(good.certificate.read_bytes() + good.key.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, both, None)
    openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", both)
    both.write_bytes(good.certificate.read_bytes() + both.read_bytes())
    with pytest.raises(CertificateFileError, match=r"TLS key .*both.pem is encrypted"):
        load_certificate(context, both, None)


def test_authorities_are_named_as_their_setting(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    (tmp_path / "text").write_text("hello")
    for name, words in ("text", "not in PEM format|no certificate"), ("none", "No such file"):
        with pytest.raises(CertificateFileError, match=f"TLS client CA .*{name}: .*({words})"):
            load_authorities(context, "client CA", tmp_path / name)
