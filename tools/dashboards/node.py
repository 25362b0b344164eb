"""The dashboard of nodes. Pure."""

from typing import Final

from tools.dashboards.panels import Dashboard, Graph, Query, Row, Stat, Table, Variable
from tools.dashboards.process import process_panels

_NODE: Final = 'job="amqp-streams", instance=~"$instance"'
_LOG: Final = f'{_NODE}, log=~"$log"'
_RATE: Final = "[$__rate_interval]"
_GOOD_AT_0: Final = ((None, "green"), (1.0, "red"))


def _quantile(quantile: float, name: str, *labels: str) -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({quantile}, sum by ({by}) (rate({name}_bucket{{{_NODE}}}{_RATE})))"


def _of_logs(name: str, direction: str) -> Query:
    series = f'amqp_streams_{name}_total{{{_LOG}, direction="{direction}"}}'
    return Query(f"sum by (log) (rate({series}{_RATE}))", "{{log}}")


_OVERVIEW: Final = Row(
    "Overview",
    (
        Stat(
            "Ready",
            "Whether all chosen nodes serve clients.",
            "none",
            (Query(f"min(amqp_streams_ready{{{_NODE}}})"),),
            words={"0": ("not ready", "red"), "1": ("ready", "green")},
        ),
        Stat(
            "Accepts events",
            "Not, if a disk is full or does not answer, Kafka is away, or the regular work of a node fails.",
            "none",
            (Query(f"max(amqp_streams_hindered{{{_NODE}}})"),),
            words={"0": ("yes", "green"), "1": ("no", "red")},
        ),
        Stat(
            "Alerts that fire",
            "Of nodes, from the rules in deploy/prometheus/rules.",
            "none",
            (Query('count(ALERTS{alertstate="firing", alertname=~"AmqpStreams.*"}) or vector(0)'),),
            _GOOD_AT_0,
        ),
        Stat(
            "Events accepted",
            "All logs together, per second.",
            "ops",
            (Query(f'sum(rate(amqp_streams_events_total{{{_NODE}, direction="in"}}{_RATE}))'),),
        ),
        Stat(
            "Events sent",
            "To all consumers together, per second. An event counts once for each consumer.",
            "ops",
            (Query(f'sum(rate(amqp_streams_events_total{{{_NODE}, direction="out"}}{_RATE}))'),),
        ),
        Stat(
            "Commit, 99th percentile",
            "Time to make events durable. Producers wait at least for this time.",
            "s",
            (Query(_quantile(0.99, "amqp_streams_commit_seconds")),),
            ((None, "green"), (0.25, "orange"), (1.0, "red")),
        ),
        Stat(
            "Free disk space",
            "The smallest part that is free on a disk of a data directory. Nodes on Kafka have none.",
            "percentunit",
            (
                Query(
                    f"min(amqp_streams_disk_free_bytes{{{_NODE}}} / amqp_streams_disk_size_bytes{{{_NODE}}})"
                ),
            ),
            ((None, "red"), (0.05, "orange"), (0.2, "green")),
        ),
        Stat(
            "Largest lag of a group",
            "Events behind the cursor of the group that is furthest behind.",
            "short",
            (Query(f"max(sum by (instance, log, group) (amqp_streams_group_lag_events{{{_NODE}}}))"),),
        ),
        Stat(
            "Failed partitions",
            "Partitions that stopped after a failed write. They need a restart of the node.",
            "none",
            (Query(f"sum(amqp_streams_partition_failed{{{_NODE}}})"),),
            _GOOD_AT_0,
        ),
        Stat(
            "Refused deliveries",
            "Deliveries of producers that were refused, per second.",
            "ops",
            (Query(f"sum(rate(amqp_streams_deliveries_refused_total{{{_NODE}}}{_RATE})) or vector(0)"),),
            ((None, "green"), (0.001, "orange")),
        ),
        Stat(
            "Connections",
            "Open AMQP connections of all chosen nodes.",
            "none",
            (Query(f"sum(amqp_streams_connections{{{_NODE}}})"),),
        ),
        Stat(
            "Certificate expires in",
            "The first of the certificates of the chosen nodes. Empty without TLS.",
            "s",
            (Query(f"min(amqp_streams_certificate_expiry_timestamp_seconds{{{_NODE}}}) - time()"),),
            ((None, "red"), (2 * 86400.0, "orange"), (14 * 86400.0, "green")),
        ),
    ),
)
_TRAFFIC: Final = Row(
    "Traffic",
    (
        Graph("Events accepted, by log", "Per second.", "ops", (_of_logs("events", "in"),), stacked=True),
        Graph(
            "Events sent, by log",
            "To consumers, per second. An event counts once for each consumer.",
            "ops",
            (_of_logs("events", "out"),),
            stacked=True,
        ),
        Graph("Bytes accepted, by log", "Per second.", "Bps", (_of_logs("bytes", "in"),), stacked=True),
        Graph(
            "Bytes sent, by log",
            "To consumers, per second.",
            "Bps",
            (_of_logs("bytes", "out"),),
            stacked=True,
        ),
        Graph(
            "Refused deliveries, by condition",
            "Deliveries of producers that the node refused, per second. amqp:resource-limit-exceeded: a full "
            "disk; amqp:unauthorized-access: a right is missing; amqp:internal-error: a failed write.",
            "ops",
            (
                Query(
                    f"sum by (condition) (rate(amqp_streams_deliveries_refused_total{{{_NODE}}}{_RATE}))",
                    "{{condition}}",
                ),
            ),
        ),
        Graph(
            "Repeated events, by log",
            "Events of idempotent producers that were stored before, per second. If no producer restarts, "
            "two producers share a name.",
            "ops",
            (Query(f"sum by (log) (rate(amqp_streams_repeated_events_total{{{_LOG}}}{_RATE}))", "{{log}}"),),
        ),
    ),
)
_COMMITS: Final = Row(
    "Commits",
    (
        Graph(
            "Duration of commits",
            "Time to write and sync one commit; on Kafka until Kafka acknowledged the events.",
            "s",
            (
                Query(_quantile(0.5, "amqp_streams_commit_seconds", "instance"), "{{instance}} median"),
                Query(
                    _quantile(0.99, "amqp_streams_commit_seconds", "instance"), "{{instance}} 99th percentile"
                ),
            ),
        ),
        Graph(
            "Events in a commit",
            "The mean. It grows with the load: larger commits give more throughput and more latency.",
            "short",
            (
                Query(
                    f"rate(amqp_streams_commit_events_sum{{{_NODE}}}{_RATE})"
                    f" / rate(amqp_streams_commit_events_count{{{_NODE}}}{_RATE})",
                    "{{instance}}",
                ),
            ),
            width=6,
        ),
        Graph(
            "Bytes of a commit",
            "The mean.",
            "bytes",
            (
                Query(
                    f"rate(amqp_streams_commit_bytes_sum{{{_NODE}}}{_RATE})"
                    f" / rate(amqp_streams_commit_bytes_count{{{_NODE}}}{_RATE})",
                    "{{instance}}",
                ),
            ),
            width=6,
        ),
        Graph(
            "Bytes that are not yet durable",
            "At limits.pending_bytes producers wait: then the disk is the bottleneck.",
            "bytes",
            (Query(f"amqp_streams_pending_bytes{{{_NODE}}}", "{{instance}}"),),
        ),
        Graph(
            "Failed commits and failed steps",
            "Partitions whose part of a commit failed, and failed steps of the regular work, per second. "
            "Neither should happen.",
            "ops",
            (
                Query(f"rate(amqp_streams_commit_failures_total{{{_NODE}}}{_RATE})", "{{instance}} commits"),
                Query(f"rate(amqp_streams_faults_total{{{_NODE}}}{_RATE})", "{{instance}} {{step}}"),
            ),
        ),
    ),
)
_STORAGE: Final = Row(
    "Storage",
    (
        Graph(
            "Free disk space, and in a day",
            "Free bytes on the disk of the data directory, and in 24 hours, if the last 6 hours continue.",
            "bytes",
            (
                Query(f"amqp_streams_disk_free_bytes{{{_NODE}}}", "{{instance}} free"),
                Query(
                    f"predict_linear(amqp_streams_disk_free_bytes{{{_NODE}}}[6h], 86400)",
                    "{{instance}} in a day",
                ),
            ),
            minimum=None,
        ),
        Graph(
            "Bytes, by log",
            "Of the retained events.",
            "bytes",
            (Query(f"sum by (log) (amqp_streams_partition_bytes{{{_LOG}}})", "{{log}}"),),
            stacked=True,
        ),
        Graph(
            "Events, by log",
            "Retained events.",
            "short",
            (Query(f"sum by (log) (amqp_streams_partition_events{{{_LOG}}})", "{{log}}"),),
        ),
        Graph(
            "Age of the earliest event, by log",
            "How far back the log reaches. With a retention by age it stays near that age.",
            "s",
            (
                Query(
                    f"time() - min by (log) (amqp_streams_partition_first_timestamp_seconds{{{_LOG}}})",
                    "{{log}}",
                ),
            ),
        ),
    ),
)
_CONSUMERS: Final = Row(
    "Consumers and groups",
    (
        Graph(
            "Lag of groups",
            "Events behind the cursor of the group, also while the group has no member. It should not grow.",
            "short",
            (
                Query(
                    f"sum by (log, group) (amqp_streams_group_lag_events{{{_LOG}}})",
                    "{{group}} on {{log}}",
                ),
            ),
        ),
        Graph(
            "Lag of consumer links, the ten largest",
            "Events that wait for the link.",
            "short",
            (
                Query(
                    f"topk(10, sum by (log, container, link) (amqp_streams_consumer_lag_events{{{_LOG}}}))",
                    "{{container}} {{link}} on {{log}}",
                ),
            ),
        ),
        Graph(
            "Members of groups",
            "Containers with links in the group, and links that wait for a partition.",
            "short",
            (
                Query(f"amqp_streams_group_members{{{_LOG}}}", "{{group}} on {{log}}: members"),
                Query(f"amqp_streams_group_waiting{{{_LOG}}}", "{{group}} on {{log}}: waiting"),
            ),
            width=8,
        ),
        Graph(
            "Moves of partitions",
            "Links that were asked to give up their partition, per second. Only while members join or leave.",
            "ops",
            (Query(f"rate(amqp_streams_group_moves_total{{{_LOG}}}{_RATE})", "{{group}} on {{log}}"),),
            width=8,
        ),
        Graph(
            "Not shown",
            "Consumer links and groups that /metrics leaves out: those after the first 1,000.",
            "short",
            (
                Query(f"amqp_streams_consumers_not_shown{{{_NODE}}}", "{{instance}} links"),
                Query(f"amqp_streams_groups_not_shown{{{_NODE}}}", "{{instance}} groups"),
            ),
            width=8,
        ),
    ),
)
_CLIENTS: Final = Row(
    "Clients and users",
    (
        Graph(
            "Connections and links",
            "Open connections, and attached links by the role of the client.",
            "short",
            (
                Query(f"sum(amqp_streams_connections{{{_NODE}}})", "connections"),
                Query(f"sum by (role) (amqp_streams_links{{{_NODE}}})", "{{role}} links"),
            ),
        ),
        Graph(
            "Logins",
            "By mechanism and result, per second. limited: not checked, because too many had failed.",
            "ops",
            (
                Query(
                    f"sum by (mechanism, result) (rate(amqp_streams_logins_total{{{_NODE}}}{_RATE}))",
                    "{{mechanism}} {{result}}",
                ),
            ),
        ),
        Graph(
            "Time that users wait for their quota",
            "Seconds of waiting of all links of a user, per second. About 1: one link waits all the time.",
            "short",
            (
                Query(
                    "sum by (user, direction)"
                    f" (rate(amqp_streams_quota_wait_seconds_total{{{_NODE}}}{_RATE}))",
                    "{{user}} {{direction}}",
                ),
            ),
        ),
        Graph(
            "Refused",
            "Per second: connections at the limit, connections and links above a quota, and requests without "
            "a right.",
            "ops",
            (
                Query(f"sum(rate(amqp_streams_connections_refused_total{{{_NODE}}}{_RATE}))", "connections"),
                Query(
                    f"sum by (user, quota) (rate(amqp_streams_quota_refused_total{{{_NODE}}}{_RATE}))",
                    "{{user}}: quota {{quota}}",
                ),
                Query(f"sum(rate(amqp_streams_access_refused_total{{{_NODE}}}{_RATE}))", "right missing"),
            ),
        ),
    ),
    closed=True,
)
_PROCESS: Final = Row(
    "Process and bounds",
    (
        *process_panels(_NODE),
        Graph(
            "Use of bounds",
            "How much of each bound is used. For bounds that begin with storage_, and for kafka_cache_bytes, "
            "1 is normal.",
            "percentunit",
            (
                Query(
                    "max by (bound)"
                    f" (amqp_streams_bound_used{{{_NODE}}} / amqp_streams_bound_limit{{{_NODE}}})",
                    "{{bound}}",
                ),
            ),
        ),
        Graph(
            "Time for $info and $management",
            "Part of the time of the event loop. More than 0.1: clients ask too often.",
            "percentunit",
            (Query(f"rate(amqp_streams_request_seconds_total{{{_NODE}}}{_RATE})", "{{instance}}"),),
        ),
        Table(
            "Version and time since the start",
            "Nodes should have one version, except during an upgrade.",
            "s",
            (
                Query(
                    f"(time() - process_start_time_seconds{{{_NODE}}})"
                    f" * on (instance) group_left (version) amqp_streams_build_info{{{_NODE}}}"
                ),
            ),
            {"instance": "Node", "version": "Version"},
            "Time since the start",
        ),
    ),
    closed=True,
)
NODE: Final = Dashboard(
    uid="amqp-streams-node",
    title="AMQP event streams: nodes",
    description="Event log nodes: what they accept and send, how durable it is and how fast, and who waits.",
    variables=(
        Variable("instance", "Node", 'amqp_streams_ready{job="amqp-streams"}', "instance"),
        Variable("log", "Log", f"amqp_streams_events_total{{{_NODE}}}", "log"),
    ),
    rows=(_OVERVIEW, _TRAFFIC, _COMMITS, _STORAGE, _CONSUMERS, _CLIENTS, _PROCESS),
    others={"amqp-streams-gateway": "Gateways", "amqp-streams-kafka": "Kafka"},
)
