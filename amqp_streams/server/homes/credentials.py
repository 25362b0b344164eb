"""[io] How this node proves to other nodes that it is one: secret and certificates of the section `node`.

Law: a file that others can read is not a secret. No message has a secret.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_streams.authentication import ClientCertificates, TlsSettings
from amqp_streams.errors import ConfigError
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.listening.tls import CIPHERS, server_context
from service_parts.certificate_files import CertificateFileError, load_authorities, load_certificate

SECRET_CHARACTERS_MIN: Final = 32
SECRET_BYTES_MAX: Final = 4096
SECRETS_MAX: Final = 2
_END: Final = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`secrets`: the first is proved, all are accepted.

    `listening`, `calling`: TLS of each side; None: without. `certificate`: the one that this node presents,
    in DER; empty without TLS.
    """

    secrets: tuple[bytes, ...]
    listening: ssl.SSLContext | None
    calling: ssl.SSLContext | None
    certificate: bytes


def load(settings: PeeringSettings) -> Credentials:
    """Read the files.

    Raises:
        ConfigError: a file cannot be used. The message names the setting or the file.
    """
    secrets = () if settings.secret_file is None else _secrets(settings.secret_file)
    if settings.certificate is None or settings.key is None or settings.ca is None:
        return Credentials(secrets, None, None, b"")
    # First, because its errors name the setting of the authorities.
    calling = _calling(settings)
    listening = server_context(
        TlsSettings(
            certificate=settings.certificate,
            key=settings.key,
            client_ca=settings.ca,
            client_certificates=ClientCertificates.REQUIRED,
        )
    )
    return Credentials(secrets, listening, calling, _presented(settings.certificate))


def _calling(settings: PeeringSettings) -> ssl.SSLContext:
    assert settings.certificate is not None, "the settings were validated"
    assert settings.ca is not None, "the settings were validated"
    # It verifies the certificate and that it names the host.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        load_certificate(context, settings.certificate, settings.key)
        load_authorities(context, "node.ca", settings.ca)
    except CertificateFileError as error:
        raise ConfigError(str(error)) from error
    return context


def _presented(certificate: Path) -> bytes:
    """The first certificate of the file, which is the node's own."""
    first = certificate.read_text(errors="replace").partition(_END)[0]
    begin = first.find(_END.replace("END", "BEGIN"))
    return ssl.PEM_cert_to_DER_cert(f"{first[begin:]}{_END}\n")


def _secrets(path: Path) -> tuple[bytes, ...]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        message = f"node.secret_file: {path} cannot be read: {error.strerror}"
        raise ConfigError(message) from error
    if mode & 0o077:
        message = (
            f"node.secret_file: other users can access {path} (mode {mode & 0o777:04o}): run chmod 600 {path}"
        )
        raise ConfigError(message)
    lines = tuple(line.strip() for line in data.splitlines() if line.strip())
    if not 1 <= len(lines) <= SECRETS_MAX or len(data) > SECRET_BYTES_MAX:
        message = f"node.secret_file: {path} must have one line with the secret, or two while it is changed"
        raise ConfigError(message)
    if any(len(line) < SECRET_CHARACTERS_MIN for line in lines):
        message = (
            f"node.secret_file: a secret in {path} has fewer than {SECRET_CHARACTERS_MIN} characters: make"
            " one with 'openssl rand -base64 32'"
        )
        raise ConfigError(message)
    return lines
