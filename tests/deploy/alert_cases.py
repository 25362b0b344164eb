"""For each alert: series with which it fires, and series with which it stays silent, minute by minute.

The notation of values is that of `promtool test rules`: `0x5` is 0 and five times more 0, `0+2x5` is 0, 2, 4
and so on, and `_` is a missed scrape.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Series = Mapping[str, str]
"""Values by the name and labels of their series."""


@dataclass(frozen=True)
class Case:
    """`at`: when the alert is looked at. `also`: other alerts that fire with the same series."""

    fires: Series
    silent: Series
    at: str = "1h"
    also: tuple[str, ...] = ()


def _named(job: str, metric: str, labels: Mapping[str, str]) -> str:
    written = ",".join(f'{name}="{value}"' for name, value in {"job": job, "instance": "a", **labels}.items())
    return f"{metric}{{{written}}}"


def node(metric: str, **labels: str) -> str:
    return _named("amqp-streams", f"amqp_streams_{metric}", labels)


def gateway(metric: str, **labels: str) -> str:
    return _named("knative-gateway", f"knative_gateway_{metric}", labels)


def of_trigger(metric: str, **labels: str) -> str:
    names = {"kind": "Trigger", "namespace": "default", "name": "t", "parent": "b"}
    return gateway(f"subscriber_{metric}", **names, **labels)


def of_broker(metric: str, **labels: str) -> str:
    return gateway(f"ingress_{metric}", kind="Broker", namespace="default", name="b", **labels)


def process(job: str, metric: str) -> str:
    return _named(job, f"process_{metric}", {})


def one(series: str, fires: str, silent: str, at: str = "1h", also: tuple[str, ...] = ()) -> Case:
    """A case of one series."""
    return Case({series: fires}, {series: silent}, at, also)


def several(at: str = "1h", /, **series: tuple[str, str, str]) -> Case:
    """A case of several series: each with its values in both cases."""
    return Case(
        {name: fires for name, fires, _ in series.values()},
        {name: silent for name, _, silent in series.values()},
        at,
    )


ZEROS: Final = "0x120"
RISES: Final = "0+1x120"
ONCE: Final = "0x55 1x60"
"""A counter that rises by 1 a few minutes before the alert is looked at."""
LONG_AGO: Final = "0x5 1x120"


def _on_both(prefix: str, job: str, version: str) -> Iterator[tuple[str, Case]]:
    """The alerts that nodes and gateways have in common."""
    part = "amqp_streams" if job == "amqp-streams" else "knative_gateway"
    start = process(job, "start_time_seconds")
    yield f"{prefix}Restarts", one(start, "1x10 2x10 3x10 4x40", "1x50 2x40")
    versions = [_named(job, f"{part}_build_info", {"instance": name, "version": version}) for name in "ab"]
    other = versions[1].replace(version, "9.9.9")
    yield (
        f"{prefix}VersionsDiffer",
        Case({versions[0]: "1x130", other: "1x130"}, {versions[0]: "1x130", versions[1]: "1x130"}, "2h"),
    )
    files, files_max = process(job, "open_fds"), process(job, "max_fds")
    yield (
        f"{prefix}DescriptorsRunOut",
        several(open=(files, "900x120", "500x120"), max=(files_max, "1000x120", "1000x120")),
    )
    expiry = _named(job, f"{part}_certificate_expiry_timestamp_seconds", {})
    yield f"{prefix}CertificateExpiresSoon", one(expiry, "1000000x120", "2000000x120")
    yield f"{prefix}CertificateExpires", one(expiry, "100x120", "3000000x120")


def _of_nodes() -> Iterator[tuple[str, Case]]:
    yield from _on_both("AmqpStreams", "amqp-streams", "0.1.0")
    yield "NodeDown", one(_named("amqp-streams", "up", {}), "1x50 0x70", "1x59 0x5 1x50")
    yield "NodeNotReady", one(node("ready"), "0x120", "0x30 1x90")
    yield "NodeHindered", one(node("hindered"), "0x50 1x70", "0x50 1x1 0x70")
    free, size = node("disk_free_bytes"), node("disk_size_bytes")
    sizes = "100000x1500", "100000x1500"
    yield (
        "DiskFillsUp",
        several("8h", free=(free, "39000-30x1500", "39000-10x1500"), size=(size, *sizes)),
    )
    yield "DiskNearlyFull", several("8h", free=(free, "4000x1500", "6000x1500"), size=(size, *sizes))
    bounds = {bound: node("commit_seconds_bucket", le=bound) for bound in ("0.5", "2.5", "+Inf")}
    slow = {bounds["0.5"]: "0x120", bounds["2.5"]: "0+9x120", bounds["+Inf"]: "0+9x120"}
    yield "CommitsSlow", Case(slow, dict.fromkeys(bounds.values(), "0+9x120"))
    yield "CommitsFail", one(node("commit_failures_total"), ONCE, LONG_AGO)
    yield "PartitionFailed", one(node("partition_failed", log="l", partition="0"), "0x50 1x70", ZEROS)
    yield "RegularWorkFails", one(node("faults_total", step="cursors"), "_x55 1x60", LONG_AGO)
    refused = node("deliveries_refused_total", condition="amqp:not-found")
    yield "ProducersRefused", one(refused, RISES, LONG_AGO)
    yield "ConnectionsRefused", one(node("connections_refused_total"), "0x58 1x60", LONG_AGO)
    logins = node("logins_total", mechanism="PLAIN", result="failed")
    yield "LoginsFail", one(logins, "0+2x120", RISES)
    yield "AccessRefused", one(node("access_refused_total"), "0+2x120", RISES)
    waits = node("quota_wait_seconds_total", user="u", direction="in")
    yield "UserThrottled", one(waits, "0+50x120", "0+10x120")
    yield "QuotaRefused", one(node("quota_refused_total", user="u", quota="links"), ONCE, LONG_AGO)
    lag = node("group_lag_events", log="l", group="g", partition="0")
    members = node("group_members", log="l", group="g")
    reads = members, "1x120", "1x120"
    yield "GroupLagGrows", several(lag=(lag, "0+100x120", "9000-10x120"), members=reads)
    yield (
        "GroupWithoutMembers",
        several(lag=(lag, "5x120", "5x120"), members=(members, "1x10 0x110", "1x120")),
    )
    link = node("consumer_lag_events", log="l", partition="0", container="c", link="k")
    yield "ConsumerLagGrows", one(link, "0+1000x120", "0+100x120")
    used, limit = node("bound_used", bound="connections"), node("bound_limit", bound="connections")
    full = limit, "10x120", "10x120"
    yield "BoundNearlyReached", several(used=(used, "10x120", "5x120"), limit=full)
    used, limit = node("bound_used", bound="storage_reads"), node("bound_limit", bound="storage_reads")
    yield "BoundExceeded", several(used=(used, "11x120", "10x120"), limit=(limit, "10x120", "10x120"))
    yield "RequestsHeavy", one(node("request_seconds_total"), "0+12x120", "0+3x120")


def _of_kafka() -> Iterator[tuple[str, Case]]:
    brokers = [node("kafka_broker_up", broker=name) for name in "12"]
    yield "Away", Case(dict.fromkeys(brokers, "1x50 0x70"), {brokers[0]: "1x120", brokers[1]: "1x58 0x60"})
    yield (
        "BrokerDown",
        Case({brokers[0]: "1x50 0x70", brokers[1]: "1x120"}, {brokers[0]: "1x57 0x70", brokers[1]: "1x120"}),
    )
    for name, metric in (
        ("WithoutLeader", "partitions_without_leader"),
        ("TooFewInSync", "partitions_below_min_in_sync"),
    ):
        yield name, one(node(f"kafka_{metric}"), "0x50 2x70", "0x40 2x5 0x70")
    yield "UnderReplicated", one(node("kafka_partitions_under_replicated"), "0x40 2x70", "0x50 2x70")
    yield "HeldBack", one(node("kafka_partitions_held_back"), "0x40 1x70", "0x40 1x4 0x70")
    yield "EventsLost", one(node("kafka_events_lost_total"), ONCE, "7x120")
    yield "Errors", one(node("kafka_errors_total", kind="transport"), RISES, LONG_AGO)
    yield "Throttles", one(node("kafka_broker_throttle_seconds", broker="1"), "0x40 1x70", ZEROS)
    yield "Timeouts", one(node("kafka_broker_request_timeouts_total", broker="1"), ONCE, LONG_AGO)
    yield "EventsWait", one(node("kafka_pending_events"), "0+100x120", "5000x120")
    yield from _of_homes()


def _of_homes() -> Iterator[tuple[str, Case]]:
    homes = [node("home_buckets", bucket=str(number)) for number in range(16)]
    all_here = dict.fromkeys(homes, "1x120")
    moves = {homes[0]: "1x30 _ _ 1x90"}
    yield "BucketWithoutHome", Case({**all_here, homes[0]: "1x50"}, {**all_here, **moves})
    age, links = node("home_lease_age_seconds", bucket="3"), node("home_links", bucket="3")
    yield (
        "HomeNotConfirmed",
        Case({age: "1x50 5+60x70", links: "2x120"}, {age: "1x50 5+60x70", links: "0x120"}),
    )
    yield "HomeLost", one(node("home_takeovers_total", after="loss"), ONCE, "7x120")
    yield "HomeNotReached", one(node("home_requests_total", outcome="in doubt"), ONCE, LONG_AGO)


def _of_gateways() -> Iterator[tuple[str, Case]]:
    yield from _on_both("KnativeGateway", "knative-gateway", "0.1.0")
    yield "Down", one(_named("knative-gateway", "up", {}), "1x50 0x70", "1x59 0x5 1x50")
    yield "NotReady", one(gateway("ready"), "0x120", "0x30 1x90")
    yield "LogNodeAway", one(gateway("event_log_connected"), "1x50 0x70", "1x120")
    yield "StateNotStored", one(gateway("positions_kept_seconds"), "0x40 0+60x80", "1x120")
    yield "TasksRestart", one(gateway("task_restarts_total", task="t"), RISES, LONG_AGO)
    workers, wanted = gateway("workers"), gateway("workers_wanted")
    yield (
        "WorkersMissing",
        several(workers=(workers, "1x120", "2x120"), wanted=(wanted, "2x120", "2x120")),
    )
    yield "WorkersRestart", one(gateway("worker_restarts_total", worker="0"), RISES, "0x50 1x70")
    yield "LogNodeRestarts", one(gateway("embedded_starts_total"), "1+1x120", "1x50 2x70")
    good, failed = of_broker("requests_total", code="202"), of_broker("requests_total", code="503")
    yield "IngressFails", several(good=(good, RISES, RISES), failed=(failed, RISES, LONG_AGO))
    refused = of_broker("requests_total", code="400")
    yield "IngressRefuses", several(good=(good, RISES, RISES), refused=(refused, "0+2x120", LONG_AGO))
    yield "UnknownBroker", one(gateway("ingress_unknown_total"), RISES, LONG_AGO)
    attempts, failures = of_trigger("request_seconds_count"), of_trigger("failed_attempts_total")
    yield (
        "SubscriberFails",
        several(all=(attempts, "0+4x120", "0+4x120"), failed=(failures, "0+3x120", RISES)),
    )
    for name, metric in (
        ("DeadLetters", "dead_lettered"),
        ("EventsDropped", "dropped"),
        ("EventsRemoved", "removed"),
        ("EventsSkipped", "skipped"),
        ("RepliesExpired", "replies_expired"),
    ):
        yield name, one(of_trigger(f"{metric}_total"), ONCE, LONG_AGO)
    lag, paused = of_trigger("lag_seconds"), of_trigger("paused")
    yield "LagGrows", several(lag=(lag, "0+60x120", "0+60x120"), paused=(paused, ZEROS, "1x120"))
    yield "PausedForLong", one(paused, "1x500", "0x100 1x500", "7h")
    yield "ConnectionsWait", one(gateway("connections_waiting"), "0x40 3x80", "0x55 3x80")
    yield "ConnectionsFail", one(gateway("local_errors_total"), ONCE, LONG_AGO)


def _all() -> Iterator[tuple[str, Case]]:
    for prefix, cases in (
        ("AmqpStreams", _of_nodes()),
        ("AmqpStreamsKafka", _of_kafka()),
        ("KnativeGateway", _of_gateways()),
    ):
        for name, case in cases:
            yield (name if name.startswith(prefix) else prefix + name), case


CASES: Final = dict(_all())
"""By the name of the alert."""
