"""The sections `external` and `oauth`: settings that cannot work are refused at the start, in plain words."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from amqp_streams.authentication import ExternalRule, OAuthSettings, TlsSettings
from amqp_streams.config import NodeSettings
from service_parts.tokens.algorithms import TokenAlgorithm

TLS = {"certificate": "c.pem", "key": "k.pem"}
GOOD: dict[str, Any] = {"issuer": "https://id.example.org", "audience": "streams", "keys": "keys.json"}


def rule(pattern: str, user: str) -> ExternalRule:
    return ExternalRule.model_validate({"name": "cn", "pattern": pattern, "user": user})


@pytest.mark.parametrize(
    ("pattern", "user", "name", "found"),
    [
        ("alice", "alice", "alice", "alice"),
        ("alice", "alice", "alice2", None),
        ("alice", "alice", "xalice", None),
        ("alice", "alice", "alice\n", None),
        ("alice$", "alice", "alice\n", None),
        ("a|b", "x", "bc", None),
        (".+", "{0}", "Ann", "Ann"),
        (r"(.+)\.devices\.example\.org", "device-{1}", "t7.devices.example.org", "device-t7"),
        (r"(?P<who>\w+)@(?P<where>\w+)", "{where}/{who}", "ann@home", "home/ann"),
        (r"(a)|(b)", "u{1}{2}", "b", "ub"),
        (".+", "{0}", "{1}", "{1}"),
    ],
)
def test_a_rule_fits_a_name_as_a_whole_and_makes_the_user(
    pattern: str, user: str, name: str, found: str | None
) -> None:
    assert rule(pattern, user).user_of(name) == found


@pytest.mark.parametrize(
    ("pattern", "user", "words"),
    [
        ("(", "x", "is not a valid pattern"),
        ("a", "{1}", r"only these braces: \{0\}"),
        ("(?P<a>x)", "{b}", r"only these braces: \{0\}, \{1\}, \{a\}"),
        ("a", "{", "only these braces"),
        ("a", "{0.x}", "only these braces"),
        ("a", "{}", "only these braces"),
        ("", "x", "at least 1"),
        ("a", "", "at least 1"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(pattern: str, user: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        rule(pattern, user)


@given(st.text(max_size=10), st.text(max_size=10), st.text(max_size=10))
def test_no_rule_that_was_taken_fails_later(pattern: str, user: str, name: str) -> None:
    try:
        made = rule(pattern, user)
    except ValidationError:
        return
    assert isinstance(made.user_of(name), str | None)


def test_rules_for_certificates_need_an_authority_that_verifies_them() -> None:
    rules = [{"name": "cn", "pattern": ".+", "user": "{0}"}]
    for tls in (None, TLS):
        with pytest.raises(ValidationError, match=r"set tls\.client_ca"):
            NodeSettings.model_validate({"data_dir": "d", "external": rules, "tls": tls})
    made = NodeSettings.model_validate(
        {"data_dir": "d", "external": rules, "tls": TLS | {"client_ca": "ca.pem"}}
    )
    assert isinstance(made.tls, TlsSettings)
    assert made.tls.client_certificates == "required"


def test_one_key_and_one_audience_need_no_list() -> None:
    made = OAuthSettings.model_validate(GOOD | {"leeway": "1m", "algorithms": "ES256"})
    assert (made.audience, made.keys, made.leeway_ms) == (("streams",), (Path("keys.json"),), 60_000)
    assert made.algorithms == (TokenAlgorithm.ES256,)
    assert not any(algorithm.symmetric for algorithm in OAuthSettings.model_validate(GOOD).algorithms)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithms": ["none"]}, "RS256"),
        ({"algorithms": []}, "at least 1"),
        ({"algorithms": ["HS256"]}, "HS256 needs a shared secret"),
        ({"algorithms": ["RS256", "HS256"]}, "HS256 needs a shared secret"),
        ({"secret_file": "s"}, "add one to algorithms"),
        ({"keys": []}, "keys is empty"),
        ({"keys": [], "algorithms": ["HS256", "ES256"], "secret_file": "s"}, "keys is empty"),
        ({"audience": []}, "at least 1"),
        ({"issuer": ""}, "at least 1"),
        ({"leeway": "1h"}, "600000"),
        ({"jwks_url": "https://x"}, "not permitted"),
    ],
)
def test_settings_that_would_take_the_wrong_tokens_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OAuthSettings.model_validate(GOOD | change)


def test_a_shared_secret_alone_is_enough_if_configured() -> None:
    made = OAuthSettings.model_validate(GOOD | {"keys": [], "algorithms": ["HS256"], "secret_file": "s"})
    assert made.keys == ()
