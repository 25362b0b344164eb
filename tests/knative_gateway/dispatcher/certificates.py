"""Certificates for tests: an authority, and a server at 127.0.0.1 that it vouches for."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Files:
    """Paths of PEM files."""

    authority: Path
    certificate: Path
    key: Path


def authority(folder: Path, common_name: str | None = None) -> Files:
    """Created in this folder. `common_name`: the certificate names this host there, and nowhere else."""
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    root = _signed(
        root_name, root_name, root_key.public_key(), root_key, x509.BasicConstraints(ca=True, path_length=0)
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name or "127.0.0.1")])
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    extension = alternative if common_name is None else x509.BasicConstraints(ca=False, path_length=None)
    leaf = _signed(name, root_name, key.public_key(), root_key, extension)
    files = Files(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    files.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
    return files


def _signed(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(signer, hashes.SHA256())
    )
