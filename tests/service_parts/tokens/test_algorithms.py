"""The algorithms that can be allowed."""

from service_parts.tokens.algorithms import PublicKeyAlgorithm, TokenAlgorithm


def test_no_algorithm_leaves_a_token_unsigned() -> None:
    """RFC 8725, section 3.1."""
    assert "none" not in {algorithm.lower() for algorithm in TokenAlgorithm}


def test_public_keys_check_every_algorithm_that_shares_no_secret() -> None:
    assert set(map(str, PublicKeyAlgorithm)) == {
        str(algorithm) for algorithm in TokenAlgorithm if not algorithm.symmetric
    }


def test_only_hmac_shares_the_secret_between_maker_and_checker() -> None:
    assert {algorithm for algorithm in TokenAlgorithm if algorithm.symmetric} == {"HS256", "HS384", "HS512"}
