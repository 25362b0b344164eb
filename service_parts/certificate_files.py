"""[io] Certificates and keys from files, for each side of TLS.

Law: an error names the file and what is wrong with it. OpenSSL never asks for a password on the terminal: the
event loop would wait for the keyboard.
"""

import ssl
from os import PathLike, fspath
from pathlib import Path

File = str | PathLike[str]


class CertificateFileError(OSError):
    """A file is missing, not readable, encrypted, or not a certificate or key; or two do not match."""


def load_certificate(context: ssl.SSLContext, certificate: File, key: File | None) -> None:
    """Load a certificate with its key, both in PEM format. `key`: None if the certificate's file has it.

    Raises:
        CertificateFileError: see there.
    """
    require_readable("certificate", certificate)
    if key is not None:
        require_readable("key", key)
    where = f"TLS certificate {fspath(certificate)}" + ("" if key is None else f" with key {fspath(key)}")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        message = f"{where}: {_reason(error)}"
        raise CertificateFileError(message) from error
    except _EncryptedKeyError as error:
        file = fspath(certificate if key is None else key)
        message = (
            f"TLS key {file} is encrypted: use a key without a password, and protect the file with its mode"
        )
        raise CertificateFileError(message) from error


def load_authorities(context: ssl.SSLContext, name: str, path: File) -> None:
    """Load the certificates of authorities. `name`: what the setting is called in the error.

    Raises:
        CertificateFileError: see there.
    """
    require_readable(name, path)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        message = f"TLS {name} {fspath(path)}: {_reason(error)}"
        raise CertificateFileError(message) from error


def require_readable(name: str, path: File) -> None:
    """Raises CertificateFileError if the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        message = f"TLS {name} {fspath(path)}: {error.strerror or error}"
        raise CertificateFileError(message) from error


class _EncryptedKeyError(Exception):
    """Raised instead of letting OpenSSL ask for the password on the terminal."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _reason(error: ssl.SSLError) -> str:
    # The second is for a key of another kind.
    if error.reason in {"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED", "KEY_TYPE_MISMATCH"}:
        return "the key does not match the certificate"
    # OpenSSL gives a bare "PEM lib" for a key that is not one.
    if not error.reason or error.reason in {"NO_START_LINE", "PEM_LIB"}:
        return "not in PEM format"
    return error.reason.replace("_", " ").lower()
