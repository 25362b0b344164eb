"""The users of certificates, from the fields that Python's ssl returns."""

from typing import Any

import pytest

from amqp_streams.authentication import CertificateName, ExternalRule
from amqp_streams.server.identity.certificates import distinguished_name, names_of, user_of

CERTIFICATE: dict[str, Any] = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "ops"), ("userId", "a1")),
        (("commonName", "old"),),
        (("commonName", "alice"),),
    ),
    "subjectAltName": (
        ("DNS", "one.example.org"),
        ("DNS", "two.example.org"),
        ("email", "alice@example.org"),
        ("URI", "spiffe://example.org/alice"),
        ("IP Address", "10.0.0.1"),
    ),
}


def rule(name: str, pattern: str, user: str) -> ExternalRule:
    return ExternalRule.model_validate({"name": name, "pattern": pattern, "user": user})


def test_names_are_those_of_the_subject_and_its_alternatives() -> None:
    assert names_of(CERTIFICATE) == {
        CertificateName.CN: ["alice"],
        CertificateName.DN: [r"CN=alice,CN=old,OU=ops+UID=a1,O=Example\, Inc.,C=DE"],
        CertificateName.DNS: ["one.example.org", "two.example.org"],
        CertificateName.EMAIL: ["alice@example.org"],
        CertificateName.URI: ["spiffe://example.org/alice"],
    }


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ([], None),
        ([rule("cn", ".+", "{0}")], "alice"),
        ([rule("cn", "old", "x")], None),
        ([rule("cn", "bob", "x"), rule("dns", r"(\w+)\.example\.org", "host-{1}")], "host-one"),
        ([rule("dns", r"two\..+", "second")], "second"),
        ([rule("email", r"(.+)@example\.org", "{1}")], "alice"),
        ([rule("uri", r"spiffe://example\.org/(.+)", "{1}")], "alice"),
        ([rule("dn", r"CN=(\w+),.*O=Example\\, Inc\.,C=DE", "{1}")], "alice"),
        ([rule("dn", r"CN=alice", "x")], None),
        ([rule("cn", "alice", "first"), rule("cn", "alice", "second")], "first"),
        ([rule("cn", "(x)?alice", "{1}"), rule("cn", "alice", "second")], None),
    ],
)
def test_the_first_rule_that_fits_decides(rules: list[ExternalRule], user: str | None) -> None:
    """The last row creates the empty name, which no user can have, and the next rule is not applied."""
    assert user_of(CERTIFICATE, rules) == user


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "x" * 300])
def test_a_name_that_is_not_valid_belongs_to_no_user(name: str) -> None:
    assert user_of({"subject": ((("commonName", name),),)}, [rule("cn", "(?s).+", "{0}")]) is None


def test_without_a_certificate_no_user_is_known() -> None:
    rules = [rule(name, "(?s).*", "someone") for name in CertificateName]
    assert user_of({}, rules) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a+b", r"a\+b"),
        ('"q"', r"\"q\""),
        ("#a", r"\#a"),
        (" a ", r"\ a\ "),
        ("a\\b", r"a\\b"),
        ("<;>", r"\<\;\>"),
        (" ", r"\ "),
        ("a=b", "a=b"),
    ],
)
def test_special_characters_of_a_distinguished_name_are_escaped(value: str, written: str) -> None:
    """RFC 4514, section 2.4: otherwise `CN=x,O=Good` could be a single name."""
    assert distinguished_name({"subject": ((("commonName", value),),)}) == f"CN={written}"
