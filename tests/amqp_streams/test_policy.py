"""Rules, quotas and redirects are refused with words when they cannot be."""

import pytest
from pydantic import ValidationError

from amqp_streams.policy import AccessRule, Quota, Redirect, Right


def rule(**fields: object) -> AccessRule:
    return AccessRule.model_validate({"users": ["alice"], "logs": ["temps"], "allow": ["receive"]} | fields)


def test_a_rule_gives_rights_on_logs_to_users() -> None:
    made = rule(
        users=["alice", "group:ops", "anonymous", "*"],
        logs=["temps", "sensor.*"],
        allow=["send", "receive", "info", "manage"],
    )
    assert made.users == ("alice", "group:ops", "anonymous", "*")
    assert made.allow == tuple(Right)
    assert made.consumer_groups is None


@pytest.mark.parametrize("user", ["ali*", "al?ce", "group:o*", "", "group:", "a\nb", "x" * 256])
def test_users_are_named_and_have_no_patterns(user: str) -> None:
    """A name that looks like a pattern would match no user, and a reader of the file would not notice."""
    with pytest.raises(ValidationError, match="is n"):
        rule(users=[user])


@pytest.mark.parametrize("pattern", ["temps/$info", "", "a b", "$management", "é", "x" * 256])
def test_a_pattern_that_no_log_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="is not a valid pattern of log names"):
        rule(logs=[pattern])


@pytest.mark.parametrize("field", ["users", "logs", "allow", "consumer_groups"])
def test_a_list_that_is_present_is_not_empty(field: str) -> None:
    """`consumer_groups = []` could mean no group or every group."""
    with pytest.raises(ValidationError, match="is empty"):
        rule(**{field: []})


def test_an_unknown_right_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="'send', 'receive', 'info' or 'manage'"):
        rule(allow=["read"])


@pytest.mark.parametrize("allow", [["manage", "receive"], ["send"], ["info"]])
def test_groups_narrow_reading_and_nothing_else(allow: list[str]) -> None:
    """A reader of `manage` next to a group would expect that it refers to the group."""
    with pytest.raises(ValidationError, match="restricts 'receive'"):
        rule(allow=allow, consumer_groups=["billing*"])
    assert rule(allow=["receive", "info"], consumer_groups=["billing*"]).consumer_groups == ("billing*",)


def test_bytes_of_a_quota_are_sizes() -> None:
    assert Quota.model_validate({"bytes_in": "10MiB", "links": 5}) == Quota(bytes_in=10 << 20, links=5)
    with pytest.raises(ValidationError, match="not a valid size"):
        Quota.model_validate({"bytes_out": "10MB/s"})
    with pytest.raises(ValidationError, match="greater than or equal to 1000"):
        Quota(bytes_in=1)


def test_a_redirect_needs_a_place_to_go_to() -> None:
    made = Redirect.model_validate({"log": "temps", "partitions": [1, 2], "host": "b.example", "port": 5672})
    assert made.partitions == (1, 2)
    assert made.container is None
    with pytest.raises(ValidationError, match="port"):
        Redirect.model_validate({"log": "temps", "host": "b.example"})
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Redirect.model_validate({"log": "temps", "partitions": [-1], "host": "b.example", "port": 1})
