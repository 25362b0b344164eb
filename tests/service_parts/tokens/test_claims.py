"""The claims of a token count if a known key signed them, for us and for now."""

from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from service_parts.tokens.algorithms import TokenAlgorithm
from service_parts.tokens.claims import (
    GROUPS_MAX,
    BadTokenError,
    Expected,
    claim,
    expiry_ms,
    group_names,
    signed_claims,
)
from service_parts.tokens.keys import Key

PRIVATE = ec.generate_private_key(ec.SECP256R1())
SECOND = ec.generate_private_key(ec.SECP256R1())
ES256 = frozenset({TokenAlgorithm.ES256})
KEYS = [Key(SECOND.public_key(), ES256, "second"), Key(PRIVATE.public_key(), ES256, "first")]
EXPECTED = Expected("issuer", ("us", "them"), (TokenAlgorithm.ES256,))
GOOD: dict[str, Any] = {"iss": "issuer", "aud": "us", "exp": 2_000_000_000, "sub": "anna"}
NOW_MS = 1_900_000_000_000


def token(key: Any = PRIVATE, kid: str | None = None, **changes: Any) -> str:
    return jwt.encode(GOOD | changes, key, "ES256", headers={} if kid is None else {"kid": kid})


def test_a_token_of_any_known_key_is_accepted() -> None:
    assert signed_claims(token(), KEYS, EXPECTED)["sub"] == "anna"
    assert signed_claims(token(SECOND, kid="second", aud=["x", "them"]), KEYS, EXPECTED)["sub"] == "anna"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (token(ec.generate_private_key(ec.SECP256R1())), "no known key signed it"),
        (token(kid="second"), "no known key signed it"),
        (token(kid="third"), "no known key signed it"),
        (token(iss="other"), "another issuer"),
        (token(aud="other"), "another audience"),
        (token(exp=None), "has no expiry"),
        (jwt.encode(GOOD, "", "none"), "an algorithm that is not allowed"),
        (jwt.encode(GOOD, "x" * 64, "HS256"), "an algorithm that is not allowed"),
        ("nonsense", "not a valid JWT"),
    ],
)
def test_any_other_token_is_refused_with_the_reason(wrong: str, reason: str) -> None:
    with pytest.raises(BadTokenError, match=reason) as caught:
        signed_claims(wrong, KEYS, EXPECTED)
    assert not any(part and part in str(caught.value) for part in wrong.split("."))


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*token().split("."), "", "e30"]), max_size=5).map(".".join)
)
def test_any_text_is_accepted_or_refused(text: str) -> None:
    try:
        assert signed_claims(text, KEYS, EXPECTED) == GOOD
    except BadTokenError:
        assert text != token()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1_899_999_970}, "expired"),
        ({"exp": None}, "claim exp is not a valid time"),
        ({"exp": True}, "claim exp is not a valid time"),
        ({"exp": "2000000000"}, "claim exp is not a valid time"),
        ({"exp": 1e300}, "claim exp is not a valid time"),
        ({"nbf": 1_900_000_031}, "not valid yet"),
        ({"nbf": None}, "claim nbf is not a valid time"),
    ],
)
def test_a_token_counts_between_its_times_only(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadTokenError, match=reason):
        expiry_ms(GOOD | claims, now_ms=NOW_MS, leeway_ms=30_000)


def test_clocks_may_differ_by_the_leeway() -> None:
    assert (
        expiry_ms({"exp": 1_899_999_971, "nbf": 1_900_000_030}, now_ms=NOW_MS, leeway_ms=30_000)
        == 1_900_000_001_000
    )


def test_a_claim_is_found_by_its_name_or_else_by_its_path() -> None:
    claims = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}}
    assert [claim(claims, name) for name in ("a.b", "a.c.d", "a.x", "x.y")] == [1, 3, None, None]


def test_groups_are_a_list_or_words_and_bounded() -> None:
    assert group_names("ops dev") == group_names(["ops", "dev", 5, "", "x" * 256]) == {"ops", "dev"}
    assert group_names({"ops": 1}) == group_names(None) == frozenset()
    assert len(group_names([str(number) for number in range(2 * GROUPS_MAX)])) == GROUPS_MAX
