"""[io] When the certificates of a file expire, for metrics."""

from pathlib import Path

from cryptography import x509

from service_parts.certificate_files import File


def expires_at(certificate: File) -> float | None:
    """When the first certificate of the file expires, in seconds since 1970.

    The file may have a whole chain: clients refuse the chain when one certificate of it has expired. None if
    the file cannot be read now, or if only OpenSSL can read it: a metric is not a reason to refuse a file.
    """
    try:
        chain = x509.load_pem_x509_certificates(Path(certificate).read_bytes())
    except (OSError, ValueError):
        return None
    return min(each.not_valid_after_utc.timestamp() for each in chain)
