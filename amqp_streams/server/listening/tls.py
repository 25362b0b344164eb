"""TLS for the listeners: contexts made from the configuration and replaced while the server runs.

Law: files with an error never replace working ones. TLS 1.2 or newer, forward secrecy, authenticated
encryption only.
"""

import ssl
from typing import Final

import structlog

from amqp_streams.authentication import ClientCertificates, TlsSettings
from amqp_streams.errors import ConfigError
from service_parts.certificate_expiry import expires_at
from service_parts.certificate_files import CertificateFileError, load_authorities, load_certificate

# TLS 1.2 suites (RFC 9325, section 4.2). The suites of TLS 1.3 are all acceptable and are not restricted.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

log = structlog.get_logger("amqp_streams.server")


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Create a context that presents `settings.certificate`.

    With `client_ca`, it asks clients for a certificate that is signed by it.

    Raises:
        ConfigError: a file is missing, not readable, encrypted, or not a certificate or key; or key and
        certificate do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # Compression reveals secrets (CRIME), and renegotiation lets a client make the node work for nothing.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        load_certificate(context, settings.certificate, settings.key)
        if settings.client_ca is not None:
            load_authorities(context, "client CA", settings.client_ca)
    except CertificateFileError as error:
        raise ConfigError(str(error)) from error
    if settings.client_ca is not None:
        required = settings.client_certificates is ClientCertificates.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


class TlsContext:
    """The TLS context for new connections. Established connections keep the context that they began with."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            ConfigError: see `server_context`.
        """
        self._settings: Final = settings
        self._context = server_context(settings)
        self.expires_at = expires_at(settings.certificate)
        """When the certificate in use expires, in seconds since 1970. None if this is not known."""

    def current(self) -> ssl.SSLContext:
        """The current context."""
        return self._context

    def reload(self) -> bool:
        """Read the files again.

        Returns False if they have an error: it is logged, and the old context stays.
        """
        try:
            self._context = server_context(self._settings)
        except ConfigError as error:
            log.error("tls_not_reloaded", reason=str(error))
            return False
        self.expires_at = expires_at(self._settings.certificate)
        log.info("tls_reloaded", certificate=str(self._settings.certificate))
        return True
