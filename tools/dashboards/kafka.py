"""The dashboard of nodes that keep their logs in Kafka, and of what they see of its brokers. Pure."""

from typing import Final

from tools.dashboards.panels import Dashboard, Graph, Query, Row, Stat, Variable

_NODE: Final = 'job="amqp-streams", instance=~"$instance"'
_BROKER: Final = f'{_NODE}, broker=~"$broker"'
_RATE: Final = "[$__rate_interval]"
_GOOD_AT_0: Final = ((None, "green"), (1.0, "red"))
_WARN_AT_1: Final = ((None, "green"), (1.0, "orange"))

# Each node reports about the same partitions, so the largest number counts, not the sum.
_OVERVIEW: Final = Row(
    "Overview",
    (
        Stat(
            "Brokers connected",
            "To the node that is connected to the fewest.",
            "none",
            (Query(f"min(sum by (instance) (amqp_streams_kafka_broker_up{{{_NODE}}}))"),),
            ((None, "red"), (1.0, "green")),
        ),
        Stat(
            "Without a leader",
            "Partitions that nothing can be written to or read from.",
            "none",
            (Query(f"max(amqp_streams_kafka_partitions_without_leader{{{_NODE}}})"),),
            _GOOD_AT_0,
        ),
        Stat(
            "Too few in sync",
            "Partitions with fewer replicas in sync than min.insync.replicas: Kafka refuses events for them.",
            "none",
            (Query(f"max(amqp_streams_kafka_partitions_below_min_in_sync{{{_NODE}}})"),),
            _GOOD_AT_0,
        ),
        Stat(
            "Under-replicated",
            "Partitions with a replica that is not in sync. Normal while a broker restarts.",
            "none",
            (Query(f"max(amqp_streams_kafka_partitions_under_replicated{{{_NODE}}})"),),
            _WARN_AT_1,
        ),
        Stat(
            "Lost events",
            "Offsets of accepted events that Kafka lost, as far as a node knew them, in the chosen time.",
            "none",
            (Query(f"max(increase(amqp_streams_kafka_events_lost_total{{{_NODE}}}[$__range]))"),),
            _GOOD_AT_0,
        ),
        Stat(
            "Events that wait for Kafka",
            "Events of all chosen nodes that Kafka has not yet acknowledged.",
            "short",
            (Query(f"sum(amqp_streams_kafka_pending_events{{{_NODE}}})"),),
        ),
    ),
)
_EVENTS: Final = Row(
    "Events",
    (
        Graph(
            "Time until Kafka acknowledges",
            "Of the events of a partition that were sent together.",
            "s",
            (
                Query(
                    "histogram_quantile(0.5, sum by (le, instance)"
                    f" (rate(amqp_streams_commit_seconds_bucket{{{_NODE}}}{_RATE})))",
                    "{{instance}} median",
                ),
                Query(
                    "histogram_quantile(0.99, sum by (le, instance)"
                    f" (rate(amqp_streams_commit_seconds_bucket{{{_NODE}}}{_RATE})))",
                    "{{instance}} 99th percentile",
                ),
            ),
        ),
        Graph(
            "Events that wait for Kafka",
            "Events that Kafka has not yet acknowledged. If they grow, Kafka is too slow or away.",
            "short",
            (Query(f"amqp_streams_kafka_pending_events{{{_NODE}}}", "{{instance}}"),),
        ),
        Graph(
            "Errors, by kind",
            "Errors of connections to Kafka, and batches that Kafka did not take, per second, by the name "
            "that librdkafka has for them.",
            "ops",
            (
                Query(
                    f"sum by (kind) (rate(amqp_streams_kafka_errors_total{{{_NODE}}}{_RATE}))",
                    "{{kind}}",
                ),
            ),
        ),
        Graph(
            "Partitions",
            "Without a leader, with too few replicas in sync, and with a replica that is not in sync.",
            "short",
            (
                Query(f"max(amqp_streams_kafka_partitions_without_leader{{{_NODE}}})", "without a leader"),
                Query(f"max(amqp_streams_kafka_partitions_below_min_in_sync{{{_NODE}}})", "too few in sync"),
                Query(f"max(amqp_streams_kafka_partitions_under_replicated{{{_NODE}}})", "under-replicated"),
            ),
        ),
    ),
)
_BROKERS: Final = Row(
    "Brokers, as the nodes see them",
    (
        Graph(
            "Connected",
            "1 while the producer of the node is connected to the broker.",
            "short",
            (Query(f"amqp_streams_kafka_broker_up{{{_BROKER}}}", "{{instance}} to {{broker}}"),),
        ),
        Graph(
            "Round trip",
            "Mean time of a request of the producer.",
            "s",
            (
                Query(
                    f"amqp_streams_kafka_broker_round_trip_seconds{{{_BROKER}}}", "{{instance}} to {{broker}}"
                ),
            ),
        ),
        Graph(
            "Throttled",
            "Mean time by which the broker delays the producer, because of a quota of Kafka.",
            "s",
            (
                Query(
                    f"amqp_streams_kafka_broker_throttle_seconds{{{_BROKER}}}", "{{instance}} to {{broker}}"
                ),
            ),
        ),
        Graph(
            "Requests without an answer in time",
            "Per second.",
            "ops",
            (
                Query(
                    f"rate(amqp_streams_kafka_broker_request_timeouts_total{{{_BROKER}}}{_RATE})",
                    "{{instance}} to {{broker}}",
                ),
            ),
        ),
    ),
)
_READING: Final = Row(
    "Reading",
    (
        Graph(
            "Readers of older events",
            "Consumers of kafka.readers that read older events now, as a part of their number. At 1, further "
            "readers of older events wait.",
            "percentunit",
            (
                Query(
                    f'amqp_streams_bound_used{{{_NODE}, bound="kafka_readers"}}'
                    f' / amqp_streams_bound_limit{{{_NODE}, bound="kafka_readers"}}',
                    "{{instance}}",
                ),
            ),
        ),
        Graph(
            "Events in memory",
            "Bytes of recent events of Kafka that the node keeps for readers. The limit is normal.",
            "bytes",
            (
                Query(f'amqp_streams_bound_used{{{_NODE}, bound="kafka_cache_bytes"}}', "{{instance}}"),
                Query(
                    f'amqp_streams_bound_limit{{{_NODE}, bound="kafka_cache_bytes"}}', "{{instance}} limit"
                ),
            ),
        ),
    ),
    closed=True,
)
_HOMES: Final = Row(
    "Homes of groups and subscriptions",
    (
        Stat(
            "Buckets without a home",
            "Of 16. Consumer groups and subscriptions in such a bucket wait. Normal for some seconds after a "
            "node was killed. Only with a section node.",
            "none",
            (Query(f"16 - count(count by (bucket) (amqp_streams_home_buckets{{{_NODE}}}))"),),
            _GOOD_AT_0,
        ),
        Graph(
            "Buckets, by node",
            "The buckets whose home is the node.",
            "short",
            (Query(f"sum by (instance) (amqp_streams_home_buckets{{{_NODE}}})", "{{instance}}"),),
        ),
        Graph(
            "Links, by home",
            "Links in groups, and durable links, of all nodes, for which the node decides.",
            "short",
            (Query(f"sum by (instance) (amqp_streams_home_links{{{_NODE}}})", "{{instance}}"),),
        ),
        Graph(
            "Groups and cursors, by home",
            "Consumer groups and cursors for which the node decides.",
            "short",
            (
                Query(f"sum by (instance) (amqp_streams_home_groups{{{_NODE}}})", "{{instance}} groups"),
                Query(f"sum by (instance) (amqp_streams_home_cursors{{{_NODE}}})", "{{instance}} cursors"),
            ),
        ),
        Graph(
            "Decisions, by result",
            "Links per second that were granted, and that were refused or ended.",
            "ops",
            (
                Query(
                    f"sum by (instance, result) (rate(amqp_streams_home_decisions_total{{{_NODE}}}{_RATE}))",
                    "{{instance}} {{result}}",
                ),
            ),
        ),
        Graph(
            "Time of a decision",
            "Mean time until a link was granted: also the time for which it waited for a partition.",
            "s",
            (
                Query(
                    f"rate(amqp_streams_home_decision_seconds_total{{{_NODE}}}{_RATE}) / on (job, instance)"
                    f' rate(amqp_streams_home_decisions_total{{{_NODE}, result="granted"}}{_RATE})',
                    "{{instance}}",
                ),
            ),
        ),
        Graph(
            "Age of the oldest lease",
            "Of buckets with links. After 3 seconds their links pause.",
            "s",
            (
                Query(
                    f"max by (instance) (amqp_streams_home_lease_age_seconds{{{_NODE}}}"
                    f" and on (job, instance, bucket) amqp_streams_home_links{{{_NODE}}} > 0)",
                    "{{instance}}",
                ),
            ),
        ),
        Graph(
            "Fences and takeovers",
            "Buckets that the node fenced, and took over in order or after a loss, in the interval.",
            "short",
            (
                Query(f"increase(amqp_streams_home_fences_total{{{_NODE}}}{_RATE})", "{{instance}} fences"),
                Query(
                    f"increase(amqp_streams_home_takeovers_total{{{_NODE}}}{_RATE})",
                    "{{instance}} after {{after}}",
                ),
            ),
        ),
        Graph(
            "Connections between nodes",
            "Nodes that report to this one (in), and homes that it reports to (out).",
            "short",
            (Query(f"amqp_streams_home_peers{{{_NODE}}}", "{{instance}} {{direction}}"),),
        ),
    ),
    closed=True,
)
KAFKA: Final = Dashboard(
    uid="amqp-streams-kafka",
    title="AMQP event streams: Kafka",
    description="Nodes that keep their logs in Kafka, and what they see of its brokers.",
    variables=(
        Variable("instance", "Node", 'amqp_streams_kafka_pending_events{job="amqp-streams"}', "instance"),
        Variable("broker", "Broker", f"amqp_streams_kafka_broker_up{{{_NODE}}}", "broker"),
    ),
    rows=(_OVERVIEW, _EVENTS, _BROKERS, _READING, _HOMES),
    others={"amqp-streams-node": "Nodes", "amqp-streams-gateway": "Gateways"},
)
