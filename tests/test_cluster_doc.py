"""The figures of docs/cluster.md follow from the constants of the code and from measured figures."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.leases import Times
from amqp_streams.homes.owners import encoded as owner
from amqp_streams.homes.owners import owner_key
from amqp_streams.homes.protocol import reports
from amqp_streams.homes.serving import NODES_MAX
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import _BATCH
from amqp_streams.kafka.looking import LOOK_S, LOOK_S_MAX, SHARE, TOPICS_EVERY, pause_after
from amqp_streams.kafka.sharing.followed import ALL_BYTES_MAX, BYTES_MAX, KEY_OVERHEAD
from amqp_streams.kafka.sharing.parts import RECORDS_MAX
from amqp_streams.kafka.sharing.producing import TRANSACTIONAL
from amqp_streams.kafka.sharing.state_topic import SEGMENT_MS
from amqp_streams.kafka_settings import KafkaSettings
from amqp_streams.server.homes.peering import CONNECTIONS_MAX
from amqp_streams.streams.consuming.cursors import Cursor, encoded, group_key
from bench.brokers.sizing import report

DOCS = Path(__file__).parent.parent / "docs"
TEXT = " ".join((DOCS / "cluster.md").read_text(encoding="utf-8").split())
PERFORMANCE = (DOCS / "performance.md").read_text(encoding="utf-8")
HOMES = (DOCS / "decisions" / "0026-homes.md").read_text(encoding="utf-8")

NODES, BROKERS, LOGS, OF_LOG, GROUPS, SERVERS = 100, 10, 100, 100, 2, 3
PARTITIONS = LOGS * OF_LOG
RATE = 1e9 / 1024
LINKS = GROUPS * PARTITIONS
INCARNATION, MEMBER = "A" * 22, "0" * 32
LOOK_WHOLE_S, LOOK_CPU_S = 1.9, 0.47
"""Measured: `python -m bench.brokers.sizing`."""
REPORT_US, HOME_US = 10, 20
"""Measured by the same command."""
METADATA = 4 + 4 + 2 + 4 + (1 + 3 * 4) * 2 + 1 + 1
"""Bytes of a partition in Kafka's Metadata response, version 12, with three replicas in sync."""


def shown(*fragments: str) -> None:
    missing = [each for each in fragments if " ".join(each.split()) not in TEXT]
    assert not missing, f"docs/cluster.md has to say: {missing}"


def measured(text: str, pattern: str) -> Sequence[float]:
    """The numbers of a figure that another page has."""
    found = re.search(pattern, text)
    assert found is not None, pattern
    return [float(each) for each in found.groups()]


def test_nodes_by_cpu() -> None:
    inside = measured(PERFORMANCE, r"\| in, 1,024 \| ([\d.]+) us \| ([\d.]+) us")
    outside = measured(PERFORMANCE, r"with 1.5 to ([\d.]+) us of the node, 0.6 to ([\d.]+) us of the brokers")
    (came,) = measured(PERFORMANCE, r"\| in, 1 KiB \| 200,000 \| (\d+)k/s")
    (went,) = measured(PERFORMANCE, r"\| out, 1 KiB \| 200,000 \| (\d+)k/s")
    nodes = RATE / came / 1000, GROUPS * RATE / went / 1000
    shown(
        f"{int(RATE):,} events a second",
        f"{LOGS * GROUPS} groups, {LINKS:,} links",
        f"| in, once | {inside[0]} us | {inside[1]} us | {_cores(inside[0])} | {_cores(inside[1])} |",
        f"| out, twice | {outside[0]} us | {outside[1]} us |"
        f" {_cores(GROUPS * outside[0])} | {_cores(GROUPS * outside[1])} |",
        f"{came:.0f}k events a second in, or gave {went:.0f}k a second out",
        f"{nodes[0]:.1f} nodes for what comes in and {nodes[1]:.1f} for what goes out:"
        f" **{round(sum(nodes))} nodes at full use, {2 * round(sum(nodes))} with a reserve of half**",
        "72k events a second of 100 bytes",
    )
    assert "in 72k/s" in PERFORMANCE


def _cores(us: float) -> str:
    return f"{us * RATE / 1e6:.1f} cores"


def test_questions_about_partitions() -> None:
    assert (TOPICS_EVERY, LOOK_S) == (2, 1.0)
    pause_s = pause_after(LOOK_CPU_S, LOOK_S)
    between_s, described = LOOK_WHOLE_S + pause_s, 2 * -(-LOGS // _BATCH)
    # While the pause stays a second: the time of the interpreter grows with the partitions.
    free = LOOK_S * SHARE / (1 - SHARE) / LOOK_CPU_S * PARTITIONS
    shown(
        f"| {2 * PARTITIONS:,}, in {2 * BROKERS} requests |"
        f" {2 * PARTITIONS * NODES:,}, in {2 * BROKERS * NODES:,} requests |",
        f"about {METADATA} bytes for a partition | {METADATA * PARTITIONS / 1e6:.2f} MB |"
        f" {METADATA * PARTITIONS * NODES / 1e6:.0f} MB |",
        f"| {described} requests for {LOGS} topics | {described * NODES} requests |",
        f"took {LOOK_WHOLE_S} s, of which the interpreter worked {LOOK_CPU_S} s",
        "at most a tenth of its interpreter",
        f"up to about {round(free, -2):,.0f} partitions",
        f"down to one in {LOOK_S_MAX:.0f} s",
        f"the time between two looks is about {between_s:.0f} s",
    )
    assert pytest.approx(0.1) == SHARE
    asked = round(2 * PARTITIONS * NODES / round(between_s) / BROKERS, -3)
    shown(f"each {between_s:.0f} s ask the {BROKERS} brokers for {asked:,.0f} offsets a second each")


def test_threads_and_connections() -> None:
    threads, connections = BROKERS + SERVERS + 1, BROKERS + SERVERS
    readers = KafkaOptions({}).readers
    least, most = 3 + 2, 3 + 2 + readers + BUCKETS
    all_nodes = [(NODES * each + BUCKETS) * connections for each in (least, least + readers)]
    shown(
        f"{threads} threads and {connections} connections",
        f"(`kafka.readers`) | 0 to {readers} |",
        f"0 to {BUCKETS}, and {BUCKETS} in all nodes together",
        f"| threads | {least * threads} | {most * threads} |",
        f"| connections to brokers | {least * connections} | {most * connections} |"
        f" {all_nodes[0]:,} to {all_nodes[1]:,}, that is {all_nodes[0] / BROKERS:,.0f} to"
        f" {all_nodes[1] / BROKERS:,.0f} for a broker |",
        f"at most {BUCKETS} connections to other nodes",
        f"accepts {CONNECTIONS_MAX:,} and knows at most {NODES_MAX:,} nodes",
    )


def test_transactions_of_homes() -> None:
    times = Times()
    assert times.renew_ms == times.positions_ms == 1000
    (commit_ms,) = measured(HOMES, r"\| commit of 1 record \| (\d+) ms")
    shown(
        f"With a commit in {commit_ms:.0f} ms",
        f"| 1, so {BUCKETS} for all |",
        f"| {int(1000 / commit_ms)}, so {int(BUCKETS * 1000 / commit_ms)} for all |",
        f"at most {RECORDS_MAX:,} in each transaction",
        f"{BUCKETS / BROKERS} for a broker",
    )


def cursor(partitions: int) -> int:
    """The bytes of a group's cursor: its key and its value."""
    key = group_key(INCARNATION, "group-01")
    positions = {index: 10**9 + index for index in range(partitions)}
    return len(encoded(Cursor(key, "user", positions, 1_764_368_400_000))) + len(key.state)


def test_states_of_homes() -> None:
    groups = LOGS * GROUPS
    written = groups * cursor(OF_LOG)
    owners = LINKS * (
        len(owner_key(report(1, 1).links[0].wanted, 99)) + len(owner(MEMBER, 100)) + KEY_OVERHEAD
    )
    memory = owners + groups * (cursor(OF_LOG) + KEY_OVERHEAD)
    kept = written * SEGMENT_MS / 1000
    (load_ms,) = measured(HOMES, r"until 10,000 keys of a bucket are loaded \| (\d+) ms")
    shown(
        f"it has {cursor(OF_LOG):,} bytes",
        f"| {written / 1e6:.2f} MB/s, and {3 * written / 1e6:.2f} MB/s with replicas |",
        f"| {NODES * written / 1e6:.0f} MB/s |",
        f"| {memory / 1e6:.1f} MB; at most {ALL_BYTES_MAX >> 20} MiB,"
        f" and {BYTES_MAX >> 20} MiB for a bucket |",
        f"wait {SEGMENT_MS // 1000} s for a segment to close | {kept / 1e6:.0f} MB,"
        f" {kept / BUCKETS / 1e6:.0f} MB for a bucket |",
        f"{load_ms / 1000:.2f} s for a node that has just started",
        f"100 nodes would read {NODES * LOGS * 10 * cursor(1000) / 1e9:.1f} GB/s of states",
    )


def test_reports_to_homes() -> None:
    made = report(OF_LOG)
    size = sum(map(len, reports.parts(made))) / len(made.links)
    most = [
        reports.LINKS_BYTES_MAX // reports.reserved(report(partitions, 1).links[0].wanted)
        for partitions in (OF_LOG, 1000)
    ]
    per_bucket = LINKS / BUCKETS
    shown(
        f"that is {size:,.0f} bytes for a link, and {REPORT_US + HOME_US} us of CPU:"
        f" {REPORT_US} us at the node and {HOME_US} us at the home",
        f"| {NODES * BUCKETS:,} a second, {NODES} to a bucket |",
        f"| {LINKS * size / 1e6:.0f} MB/s |",
        f"with {per_bucket:,.0f} links | {per_bucket * HOME_US / 1e4:.1f} % of its event loop;"
        f" {LINKS * HOME_US / 1e4:.0f} % with all {BUCKETS} buckets |",
        f"A report has at most {reports.REPORT_BYTES_MAX >> 20} MiB",
        f"at most {most[0]} links of a bucket for logs with {OF_LOG} partitions, and {most[1]} for logs with"
        " 1,000",
    )


def test_idempotent_producers() -> None:
    most: int = KafkaSettings.model_fields["numbered"].default
    (rate,) = measured(PERFORMANCE, r"\| numbered \| (\d+) \|")
    threads, connections = most * (BROKERS + SERVERS + 1 + 1), most * (BROKERS + SERVERS)
    every = NODES * most
    shown(
        f"{rate:.0f} a second, measured",
        f"| a node with {most} |",
        f"| threads | {threads} |",
        f"| {connections} | {NODES * connections:,},"
        f" that is {NODES * connections // BROKERS:,} for a broker |",
        f"| {most} | {every:,}, that is {every // BROKERS} for a broker |",
        f"| {most * rate:,.0f} | {every * rate:,.0f}, that is {every * rate / BROKERS:,.0f} for a broker |",
    )


def test_open_transactions() -> None:
    timeout_ms = TRANSACTIONAL["transaction.timeout.ms"]
    assert isinstance(timeout_ms, int)
    shown(f"Otherwise Kafka does after {timeout_ms // 1000} s")
