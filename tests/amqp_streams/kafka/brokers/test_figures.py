"""What librdkafka reports, as figures."""

import json

from confluent_kafka import KafkaError

from amqp_streams.kafka.brokers.figures import KINDS_MAX, KafkaFigures, Replication

REPORT = json.dumps(
    {
        "brokers": {
            "a:9092/1": {
                "nodeid": 1,
                "state": "UP",
                "rtt": {"avg": 2500},
                "throttle": {"avg": 40},
                "req_timeouts": 3,
            },
            "b:9092/2": {"nodeid": 2, "state": "TRY_CONNECT"},
            "a:9092/bootstrap": {"nodeid": -1, "state": "UP"},
        }
    }
)


class Named:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


def samples(figures: KafkaFigures) -> dict[tuple[str, ...], float]:
    return {
        (each.name, *labels): value for each in figures.figures() for labels, value in each.samples.items()
    }


def test_each_broker_with_a_number_has_its_figures() -> None:
    figures = KafkaFigures()
    figures.statistics(REPORT)
    found = samples(figures)
    assert found["kafka_broker_up", "1"] == 1.0
    assert found["kafka_broker_up", "2"] == 0.0
    assert found["kafka_broker_round_trip_seconds", "1"] == 0.0025
    assert found["kafka_broker_throttle_seconds", "1"] == 0.04
    assert found["kafka_broker_request_timeouts", "1"] == 3
    assert ("kafka_broker_up", "-1") not in found


def test_errors_are_counted_by_their_kind() -> None:
    figures = KafkaFigures()
    for code in (KafkaError._TRANSPORT, KafkaError._TRANSPORT, KafkaError.NOT_ENOUGH_REPLICAS):
        figures.failed(KafkaError(code))
    found = samples(figures)
    assert found["kafka_errors", "transport"] == 2
    assert found["kafka_errors", "not_enough_replicas"] == 1


def test_kinds_without_end_do_not_make_series_without_end() -> None:
    figures = KafkaFigures()
    for number in range(KINDS_MAX + 10):
        figures.failed(Named(f"KIND_{number}"))
    found = {key: value for key, value in samples(figures).items() if key[0] == "kafka_errors"}
    assert len(found) == KINDS_MAX + 1
    assert found["kafka_errors", "other"] == 10


def test_the_node_sets_what_it_counts_itself() -> None:
    figures = KafkaFigures()
    figures.pending_events = 7
    figures.replication = sum([Replication(1, 2, 3), Replication(0, 1, 4)], Replication())
    found = samples(figures)
    assert found["kafka_pending_events",] == 7
    assert found["kafka_partitions_without_leader",] == 1
    assert found["kafka_partitions_below_min_in_sync",] == 3
    assert found["kafka_partitions_under_replicated",] == 7
    assert all(not figure.counter or not figure.name.endswith("_total") for figure in figures.figures())
