"""The settings of the state topic, and how nodes that start find it."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.settings import TopicSettings
from amqp_streams.kafka.sharing.state_topic import find_or_create, problems, state_configuration
from bench.products.kafka_cluster import Cluster

GOOD = TopicSettings(16, 3, 2, False, 2 << 20, True, True, None, None, 1, 1)


def test_a_good_topic_has_no_problem() -> None:
    assert problems("t", GOOD, 16, weak=False) == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partitions": 8}, "it has 8 partitions, and must have 16"),
        ({"compacted": False}, "its cleanup.policy is not compact"),
        ({"removes": True}, "its cleanup.policy is not compact"),
        ({"message_bytes": 1000}, "its max.message.bytes is 1000"),
        ({"replicas": 2}, "it has 2 replicas"),
        ({"in_sync_min": 1}, "min.insync.replicas is 1"),
        ({"unclean": True}, "unclean.leader.election.enable is true"),
    ],
)
def test_what_is_wrong_is_named_with_the_topic(changed: dict[str, Any], words: str) -> None:
    (found,) = problems("t", replace(GOOD, **changed), 16, weak=False)
    assert found.startswith("topic 't' cannot have the states of groups and cursors: ")
    assert words in found


def test_a_weak_topic_is_allowed_by_name_only() -> None:
    weak = replace(GOOD, replicas=1, in_sync_min=1)
    assert len(problems("t", weak, 16, weak=False)) == 2
    assert problems("t", weak, 16, weak=True) == ()
    assert state_configuration(1)["min.insync.replicas"] == "1"


def test_the_topic_that_is_created_is_the_one_that_is_found(
    administration: Administration, topic: FoundTopic
) -> None:
    again = find_or_create(administration, topic.name, 16, replicas=3, weak=False)
    assert again == topic
    assert problems(topic.name, topic.settings, 16, weak=False) == ()


def test_a_topic_with_other_settings_is_refused_and_not_changed(
    kafka: Cluster, administration: Administration
) -> None:
    name = f"t{uuid.uuid4().hex[:12]}.state"
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 3, config={"cleanup.policy": "compact,delete"})])[name].result(60)
    before = administration.await_topic(name)
    with pytest.raises(StorageError, match="must have 16") as caught:
        find_or_create(administration, name, 16, replicas=3, weak=False)
    assert "cleanup.policy" in str(caught.value)
    assert "use another kafka.prefix" in str(caught.value)
    assert administration.await_topic(name) == before
    administration.delete(before)
