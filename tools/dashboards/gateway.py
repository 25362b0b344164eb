"""The dashboard of gateways. Pure."""

from typing import Final

from tools.dashboards.panels import Dashboard, Graph, Query, Row, Stat, Table, Variable
from tools.dashboards.process import process_panels

_GATEWAY: Final = 'job="knative-gateway", instance=~"$instance"'
_ROUTE: Final = f'{_GATEWAY}, namespace=~"$namespace", name=~"$broker"'
_SUBSCRIBER: Final = f'{_GATEWAY}, namespace=~"$namespace", name=~"$subscriber"'
_RATE: Final = "[$__rate_interval]"
_BY: Final = "namespace, name"
_NAME: Final = "{{namespace}}/{{name}}"
_GOOD_AT_0: Final = ((None, "green"), (1.0, "red"))
_WARN_AT_1: Final = ((None, "green"), (1.0, "orange"))


def _per_subscriber(counter: str, words: str = "") -> Query:
    series = f"knative_gateway_subscriber_{counter}_total{{{_SUBSCRIBER}}}"
    return Query(f"sum by ({_BY}) (rate({series}{_RATE}))", f"{_NAME} {words}".rstrip())


def _per_route(counter: str) -> Query:
    return Query(f"sum by ({_BY}) (rate(knative_gateway_ingress_{counter}_total{{{_ROUTE}}}{_RATE}))", _NAME)


def _quantiles(histogram: str, chosen: str) -> tuple[Query, ...]:
    buckets = f"rate(knative_gateway_{histogram}_bucket{{{chosen}}}{_RATE})"
    return tuple(
        Query(f"histogram_quantile({quantile}, sum by (le, {_BY}) ({buckets}))", f"{_NAME} {words}")
        for quantile, words in ((0.5, "median"), (0.99, "99th percentile"))
    )


def _part(gauge: str) -> str:
    series = f"knative_gateway_{gauge}"
    return f"{series}{{{_GATEWAY}}} / {series}_max{{{_GATEWAY}}}"


def _in_range(*counters: str) -> str:
    return " + ".join(
        f"sum(increase(knative_gateway_subscriber_{counter}_total{{{_GATEWAY}}}[$__range]))"
        for counter in counters
    )


_OVERVIEW: Final = Row(
    "Overview",
    (
        Stat(
            "Ready",
            "Whether all chosen gateways are ready; /readyz has the reason if not.",
            "none",
            (Query(f"min(knative_gateway_ready{{{_GATEWAY}}})"),),
            words={"0": ("not ready", "red"), "1": ("ready", "green")},
        ),
        Stat(
            "Log node",
            "Whether all chosen gateways are connected to their log node.",
            "none",
            (Query(f"min(knative_gateway_event_log_connected{{{_GATEWAY}}})"),),
            words={"0": ("away", "red"), "1": ("connected", "green")},
        ),
        Stat(
            "Alerts that fire",
            "Of gateways, from the rules in deploy/prometheus/rules.",
            "none",
            (Query('count(ALERTS{alertstate="firing", alertname=~"KnativeGateway.*"}) or vector(0)'),),
            _GOOD_AT_0,
        ),
        Stat(
            "Events accepted",
            "By all Brokers and Channels, per second.",
            "ops",
            (Query(f"sum(rate(knative_gateway_ingress_events_total{{{_GATEWAY}}}{_RATE}))"),),
        ),
        Stat(
            "Events delivered",
            "To all subscribers, per second.",
            "ops",
            (Query(f"sum(rate(knative_gateway_subscriber_delivered_total{{{_GATEWAY}}}{_RATE}))"),),
        ),
        Stat(
            "Oldest event",
            "Age of the oldest event that a subscriber has not completed.",
            "s",
            (Query(f"max(knative_gateway_subscriber_lag_seconds{{{_GATEWAY}}})"),),
            ((None, "green"), (60.0, "orange"), (600.0, "red")),
        ),
        Stat(
            "Dead letters",
            "Events that went to a dead letter sink in the chosen time.",
            "short",
            (Query(_in_range("dead_lettered")),),
            _WARN_AT_1,
        ),
        Stat(
            "Lost events",
            "Events that were dropped, or that retention removed before their delivery, in the chosen time.",
            "short",
            (Query(_in_range("dropped", "removed")),),
            _GOOD_AT_0,
        ),
        Stat(
            "Failed attempts",
            "Part of the attempts that failed.",
            "percentunit",
            (
                Query(
                    f"sum(rate(knative_gateway_subscriber_failed_attempts_total{{{_GATEWAY}}}{_RATE}))"
                    f" / sum(rate(knative_gateway_subscriber_request_seconds_count{{{_GATEWAY}}}{_RATE}))"
                ),
            ),
            ((None, "green"), (0.01, "orange"), (0.5, "red")),
        ),
        Stat(
            "Paused subscribers",
            "Triggers and Subscriptions whose events wait in the log.",
            "none",
            (Query(f"sum(max by (kind, {_BY}) (knative_gateway_subscriber_paused{{{_GATEWAY}}}))"),),
            _WARN_AT_1,
        ),
        Stat(
            "Positions stored",
            "How long ago. More than a minute: the state database is away or full.",
            "s",
            (Query(f"max(knative_gateway_positions_kept_seconds{{{_GATEWAY}}})"),),
            ((None, "green"), (30.0, "orange"), (60.0, "red")),
        ),
        Stat(
            "Certificate expires in",
            "The first of the certificates of the chosen gateways. Empty without TLS.",
            "s",
            (Query(f"min(knative_gateway_certificate_expiry_timestamp_seconds{{{_GATEWAY}}}) - time()"),),
            ((None, "red"), (2 * 86400.0, "orange"), (14 * 86400.0, "green")),
        ),
    ),
)
_INGRESS: Final = Row(
    "Brokers and Channels",
    (
        Graph("Events accepted", "Per second.", "ops", (_per_route("events"),), stacked=True),
        Graph(
            "Requests, by status",
            "Per second. 202: accepted; 4xx: the event is not valid or not allowed; 429 and 503: the sender "
            "should try again.",
            "ops",
            (
                Query(
                    f"sum by (code) (rate(knative_gateway_ingress_requests_total{{{_ROUTE}}}{_RATE}))",
                    "{{code}}",
                ),
                Query(
                    f"sum(rate(knative_gateway_ingress_unknown_total{{{_GATEWAY}}}{_RATE}))",
                    "unknown Broker or Channel",
                ),
            ),
        ),
        Graph(
            "Time until the answer",
            "From the headers of a request until it was answered: the event is durable then.",
            "s",
            _quantiles("ingress_seconds", _ROUTE),
        ),
        Graph(
            "Bytes accepted",
            "Bodies of accepted requests, per second.",
            "Bps",
            (_per_route("bytes"),),
            width=6,
        ),
        Graph(
            "Duplicates",
            "Events that were accepted before, per second.",
            "ops",
            (_per_route("duplicates"),),
            width=6,
        ),
        Graph(
            "Requests in flight",
            "Requests without an answer yet.",
            "short",
            (Query(f"sum by ({_BY}) (knative_gateway_ingress_in_flight{{{_ROUTE}}})", _NAME),),
        ),
        Graph(
            "Partitions",
            "Partitions of the log of a Broker or Channel that this gateway delivers. Replicas share them.",
            "short",
            (
                Query(
                    f"sum by (instance, {_BY}) (knative_gateway_partitions{{{_ROUTE}}})",
                    "{{instance}} {{namespace}}/{{name}}",
                ),
            ),
        ),
    ),
)
_DELIVERY: Final = Row(
    "Deliveries to Triggers and Subscriptions",
    (
        Graph(
            "Delivered and matched",
            "Events that the subscriber accepted, and events that its filter matched, per second.",
            "ops",
            (_per_subscriber("delivered", "delivered"), _per_subscriber("matched", "matched")),
        ),
        Graph(
            "Oldest event",
            "Age of the oldest event that is not completed. If it grows, the subscriber is too slow.",
            "s",
            (Query(f"max by ({_BY}) (knative_gateway_subscriber_lag_seconds{{{_SUBSCRIBER}}})", _NAME),),
        ),
        Graph(
            "Events behind",
            "Events of the log after the position of the subscriber, matching or not.",
            "short",
            (Query(f"sum by ({_BY}) (knative_gateway_subscriber_lag_events{{{_SUBSCRIBER}}})", _NAME),),
        ),
        Graph(
            "Duration of requests",
            "From a request to the answer of the subscriber.",
            "s",
            _quantiles("subscriber_request_seconds", _SUBSCRIBER),
        ),
        Graph(
            "Time from stored to completed",
            "It contains all attempts, and the time in which the event waited.",
            "s",
            _quantiles("subscriber_delivery_seconds", _SUBSCRIBER),
        ),
        Graph(
            "In flight and waiting",
            "Requests without an answer, and deliveries that wait for their next attempt.",
            "short",
            (
                Query(
                    f"sum by ({_BY}) (knative_gateway_subscriber_in_flight{{{_SUBSCRIBER}}})",
                    f"{_NAME} in flight",
                ),
                Query(
                    f"sum by ({_BY}) (knative_gateway_subscriber_waiting{{{_SUBSCRIBER}}})",
                    f"{_NAME} waiting",
                ),
            ),
        ),
        Graph(
            "Replies",
            "Per second. expired: replies that were dropped because they passed too many Brokers.",
            "ops",
            (_per_subscriber("replied", "stored"), _per_subscriber("replies_expired", "expired")),
        ),
        Table(
            "Paused subscribers",
            "Their events wait in the log until retention removes them.",
            "none",
            (
                Query(
                    f"max by (kind, {_BY}, parent) (knative_gateway_subscriber_paused{{{_SUBSCRIBER}}}) == 1"
                ),
            ),
            {"kind": "Kind", "namespace": "Namespace", "name": "Name", "parent": "Broker or Channel"},
            "Paused",
        ),
    ),
)
_FAILURES: Final = Row(
    "Failures",
    (
        Graph(
            "Failed attempts and retries",
            "Per second.",
            "ops",
            (_per_subscriber("failed_attempts", "failed"), _per_subscriber("retried", "retried")),
        ),
        Graph(
            "Dead letters",
            "Events to a dead letter sink, per second.",
            "ops",
            (_per_subscriber("dead_lettered"),),
        ),
        Graph(
            "Lost",
            "Events that failed without a dead letter sink, and events that retention removed before their "
            "delivery, per second.",
            "ops",
            (_per_subscriber("dropped", "dropped"), _per_subscriber("removed", "removed")),
        ),
        Graph(
            "Skipped",
            "Messages that are not CloudEvents, and events whose filter failed, per second.",
            "ops",
            (_per_subscriber("skipped"),),
        ),
    ),
)
_CONNECTIONS: Final = Row(
    "Connections to subscribers",
    (
        Graph(
            "Connections",
            "In use and idle, as a part of the limit.",
            "percentunit",
            (
                Query(
                    _part("connections"),
                    "{{instance}}",
                ),
            ),
            width=8,
        ),
        Graph(
            "Requests and replies that wait",
            "Requests for a free connection; replies that are not read until others were received; names of "
            "hosts that are looked up.",
            "short",
            (
                Query(f"knative_gateway_connections_waiting{{{_GATEWAY}}}", "{{instance}} requests"),
                Query(f"knative_gateway_replies_waiting{{{_GATEWAY}}}", "{{instance}} replies"),
                Query(f"knative_gateway_lookups{{{_GATEWAY}}}", "{{instance}} host names"),
            ),
            width=8,
        ),
        Graph(
            "Bytes of replies",
            "As a part of the limit.",
            "percentunit",
            (
                Query(
                    _part("reply_bytes"),
                    "{{instance}}",
                ),
            ),
            width=8,
        ),
        Graph(
            "Errors of this machine, and repeated requests",
            "Connections for which the machine had no descriptor or port, and requests that were sent again "
            "because the subscriber had closed the idle connection, per second.",
            "ops",
            (
                Query(
                    f"rate(knative_gateway_local_errors_total{{{_GATEWAY}}}{_RATE})", "{{instance}} errors"
                ),
                Query(f"rate(knative_gateway_resent_total{{{_GATEWAY}}}{_RATE})", "{{instance}} sent again"),
            ),
        ),
    ),
    closed=True,
)
_PROCESS: Final = Row(
    "Process, tasks and workers",
    (
        *process_panels(_GATEWAY),
        Graph(
            "Restarts",
            "Of tasks, of workers, and starts of the log node that the gateway runs, in the chosen time.",
            "short",
            (
                Query(
                    f"increase(knative_gateway_task_restarts_total{{{_GATEWAY}}}[$__range])", "task {{task}}"
                ),
                Query(
                    f"increase(knative_gateway_worker_restarts_total{{{_GATEWAY}}}[$__range])",
                    "worker {{worker}}",
                ),
                Query(f"increase(knative_gateway_embedded_starts_total{{{_GATEWAY}}}[$__range])", "log node"),
            ),
        ),
        Graph(
            "Workers and tasks",
            "Workers that run and that the settings ask for; tasks that ended recently.",
            "short",
            (
                Query(f"knative_gateway_workers{{{_GATEWAY}}}", "{{instance}} workers"),
                Query(f"knative_gateway_workers_wanted{{{_GATEWAY}}}", "{{instance}} workers wanted"),
                Query(f"knative_gateway_leaders{{{_GATEWAY}}}", "{{instance}} writes statuses"),
                Query(f"knative_gateway_tasks_down{{{_GATEWAY}}}", "{{instance}} tasks down"),
            ),
        ),
        Table(
            "Version and time since the start",
            "Replicas should have one version, except during an upgrade.",
            "s",
            (
                Query(
                    f"(time() - process_start_time_seconds{{{_GATEWAY}}})"
                    f" * on (instance) group_left (version) knative_gateway_build_info{{{_GATEWAY}}}"
                ),
            ),
            {"instance": "Gateway", "version": "Version"},
            "Time since the start",
        ),
    ),
    closed=True,
)
GATEWAY: Final = Dashboard(
    uid="amqp-streams-gateway",
    title="AMQP event streams: gateways",
    description="Knative gateways: what Brokers and Channels accept, and what subscribers get.",
    variables=(
        Variable("instance", "Gateway", 'knative_gateway_ready{job="knative-gateway"}', "instance"),
        Variable("namespace", "Namespace", f"knative_gateway_partitions{{{_GATEWAY}}}", "namespace"),
        Variable("broker", "Broker or Channel", f"knative_gateway_partitions{{{_GATEWAY}}}", "name"),
        Variable(
            "subscriber",
            "Trigger or Subscription",
            f"knative_gateway_subscriber_paused{{{_GATEWAY}}}",
            "name",
        ),
    ),
    rows=(_OVERVIEW, _INGRESS, _DELIVERY, _FAILURES, _CONNECTIONS, _PROCESS),
    others={"amqp-streams-node": "Nodes", "amqp-streams-kafka": "Kafka"},
)
