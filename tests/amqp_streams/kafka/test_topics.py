"""Names of topics: reversible, short enough, and never refused because of another one."""

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amqp_streams.kafka.topics import PREFIX_MAX, TOPIC_NAME_MAX, TopicNames, topic_changes
from amqp_streams.log_settings import LOG_NAME

LOGS = st.from_regex(LOG_NAME, fullmatch=True) | st.from_regex(r"a[._ud-]{0,12}b", fullmatch=True)
TOPICS = TopicNames()


def metric(topic: str) -> str:
    """The name that Kafka compares before it makes a topic (`Topic.unifyCollisionChars`)."""
    return topic.replace(".", "_")


@given(LOGS)
def test_a_log_is_found_again_from_the_name_of_its_topic(name: str) -> None:
    if len(name) + 3 * name.count("_") + name.count(".-") + len("amqp-streams.log.") <= TOPIC_NAME_MAX:
        topic = TOPICS.of_log(name)
        assert TOPICS.log_of(topic) == name
        assert "_" not in topic


@given(LOGS)
def test_no_topic_is_longer_than_kafka_allows(name: str) -> None:
    with suppress(ValueError):
        assert len(TOPICS.of_log(name)) <= TOPIC_NAME_MAX


def test_a_name_that_is_too_long_for_kafka_is_refused_with_the_bound() -> None:
    assert len(TOPICS.of_log("x" * 232)) == TOPIC_NAME_MAX
    with pytest.raises(ValueError, match=r"would have 250 characters \(at most 249\)"):
        TOPICS.of_log("x" * 233)


@given(LOGS, LOGS)
def test_topics_of_two_logs_never_collide(one: str, other: str) -> None:
    assume(one != other and len(one + other) < 150)
    assert metric(TOPICS.of_log(one)) != metric(TOPICS.of_log(other))


@given(st.text("abud._-", max_size=12))
def test_what_is_not_written_for_a_log_is_not_the_topic_of_a_log(rest: str) -> None:
    topic = f"amqp-streams.log.{rest}"
    name = TOPICS.log_of(topic)
    assert name is None or TOPICS.of_log(name) == topic


@pytest.mark.parametrize(
    ("log", "topic"),
    [
        ("temps", "amqp-streams.log.temps"),
        ("broker.default.my-broker", "amqp-streams.log.broker.default.my-broker"),
        ("a_b", "amqp-streams.log.a.-ub"),
        ("a.-b", "amqp-streams.log.a.-db"),
        ("a..b", "amqp-streams.log.a..b"),
    ],
)
def test_usual_names_stay_readable(log: str, topic: str) -> None:
    assert (TOPICS.of_log(log), TOPICS.log_of(topic)) == (topic, log)


@pytest.mark.parametrize(
    "topic", ["temps", "amqp-streams.state", "amqp-streams.log.", "amqp-streams.log.a_b", "other.log.a"]
)
def test_other_topics_are_not_logs(topic: str) -> None:
    assert TOPICS.log_of(topic) is None


def test_clusters_can_have_nodes_with_different_prefixes() -> None:
    assert TopicNames("site-a").of_log("x") == "site-a.log.x"
    assert TopicNames("site-a").log_of(TopicNames("site-b").of_log("x")) is None
    assert TopicNames("site-a").state == "site-a.state"


@pytest.mark.parametrize("prefix", ["", "a_b", "-a", "a.", "a/b", "x" * (PREFIX_MAX + 1)])
def test_an_invalid_prefix_is_refused_with_its_rule(prefix: str) -> None:
    with pytest.raises(ValueError, match="is not a valid prefix of topics"):
        TopicNames(prefix)


def test_a_topic_that_was_made_again_has_another_id() -> None:
    changes = topic_changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"})
    assert (changes.appeared, changes.remade, changes.gone) == (("d",), ("b",), ("c",))


def test_a_plain_topic_is_a_log_with_its_own_name() -> None:
    names = TopicNames("p", frozenset({"orders_1", "a.b"}))
    assert (names.of_log("orders_1"), names.log_of("orders_1")) == ("orders_1", "orders_1")
    assert names.of_log("other") == "p.log.other"
    # Two topics are never one log.
    assert names.log_of("p.log.a.b") is None
    assert names.log_of("orders_2") is None


@pytest.mark.parametrize("topic", ["p.log.x", "../x", "x" * 300])
def test_a_topic_that_cannot_be_a_plain_log_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match=r"prefix of the logs|not a valid log name"):
        TopicNames("p", frozenset({topic}))
