"""The user that a verified client certificate belongs to, according to `[[external]]`. Pure.

Law: a name is compared as a whole, as text. If a certificate has several names of a kind, each is tried in
the certificate's order, and the first rule that matches one decides. If the rule produces an invalid user
name, the certificate belongs to no user.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from amqp_streams.authentication import CertificateName, ExternalRule
from amqp_streams.server.identity.users import user_name

_ALTERNATIVES: Final = {
    "DNS": CertificateName.DNS,
    "email": CertificateName.EMAIL,
    "URI": CertificateName.URI,
}
# The short names of RFC 4514, section 3. Other attributes keep OpenSSL's long names.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED: Final = str.maketrans({character: f"\\{character}" for character in '"+,;<>\\'} | {"\0": "\\00"})

Certificate = Mapping[str, Any]
"""The certificate as `ssl.SSLSocket.getpeercert` returns it. Empty if none was verified."""


def user_of(certificate: Certificate, rules: Sequence[ExternalRule]) -> str | None:
    """Return the user that the certificate belongs to; None if no rule matches."""
    names = names_of(certificate)
    for rule in rules:
        for name in names[rule.name]:
            user = rule.user_of(name)
            if user is not None:
                return _possible(user)
    return None


def names_of(certificate: Certificate) -> dict[CertificateName, list[str]]:
    """Return the certificate's names by kind."""
    subject = [pair for entry in certificate.get("subject", ()) for pair in entry]
    names: dict[CertificateName, list[str]] = {kind: [] for kind in CertificateName}
    # Only the most specific common name counts: it comes last.
    names[CertificateName.CN] = [value for key, value in subject if key == "commonName"][-1:]
    names[CertificateName.DN] = [distinguished_name(certificate)] if subject else []
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in _ALTERNATIVES:
            names[_ALTERNATIVES[kind]].append(value)
    return names


def distinguished_name(certificate: Certificate) -> str:
    """Return the subject as RFC 4514 writes it, the most specific part first.

    `CN=alice,OU=ops,O=Example`.
    """
    entries = [
        "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in entry)
        for entry in certificate.get("subject", ())
    ]
    return ",".join(reversed(entries))


def _escaped(value: str) -> str:
    text = value.translate(_ESCAPED)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return f"{text[:-1]}\\ " if value.endswith(" ") and len(value) > 1 else text


def _possible(user: str) -> str | None:
    try:
        return user_name(user)
    except ValueError:
        # A rule may create a name that no user can have: then the certificate belongs to no user.
        return None
