"""What a node says about its homes, and about the other nodes, to its operators.

Law: the number of samples is bounded by the number of buckets.
"""

from collections.abc import Iterator
from typing import Final

from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.sweeping import Sweeping
from amqp_streams.homes.describing.inquiring import Inquiring
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.homes.protocol.parts import Unfinished
from amqp_streams.server.homes.answering import Answering
from amqp_streams.server.homes.describing import Describing
from amqp_streams.storage.questions import Figure

_BUCKET: Final = ("bucket",)
_Samples = dict[tuple[str, ...], float]


def home_figures(home: Home, times: Times, now_ms: int) -> Iterator[Figure]:
    """The figures of the homes of a node."""
    here, groups, cursors, links, ages = _Samples(), _Samples(), _Samples(), _Samples(), _Samples()
    for number, bucket in sorted(home.buckets.items()):
        decides, label = bucket.deciding, (str(number),)
        if decides is not None:
            known = decides.groups.counts
            here[label] = 1.0
            groups[label] = sum(map(known.of, known.incarnations()))
            cursors[label] = len(decides.cursors)
            links[label] = sum(len(each.claimants) for each in decides.sessions.values())
            ages[label] = max(0, now_ms - bucket.lease_end_ms + times.lease_ms) / 1000
    yield Figure(
        "home_buckets",
        "1 for each bucket of groups and cursors whose home is this node.",
        here,
        _BUCKET,
    )
    yield Figure("home_groups", "Consumer groups for which this node decides.", groups, _BUCKET)
    yield Figure("home_cursors", "Cursors for which this node decides.", cursors, _BUCKET)
    yield Figure("home_links", "Links of all nodes for which this node decides.", links, _BUCKET)
    yield Figure(
        "home_lease_age_seconds",
        "Time since Kafka confirmed this home. It is renewed each second while a node reports links.",
        ages,
        _BUCKET,
    )
    counts = home.counts
    yield Figure(
        "home_decisions",
        "Links that this node granted as a home, and those that it refused or ended.",
        {("granted",): counts.granted, ("ended",): counts.ended},
        ("result",),
        counter=True,
    )
    yield Figure(
        "home_decision_seconds",
        "How long links that were granted have waited for the home, together.",
        {(): counts.decision_ms / 1000},
        counter=True,
    )
    yield Figure(
        "home_fences", "How often this node fenced a bucket.", {(): float(counts.fences)}, counter=True
    )
    yield Figure(
        "home_takeovers",
        "Buckets that this node took over: from a home that left in order, or after the lease of a lost one.",
        {("order",): counts.in_order, ("loss",): counts.after_loss},
        ("after",),
        counter=True,
    )


def change_figures(asking: Asking, answering: Answering, sweeping: Sweeping) -> Iterator[Figure]:
    """The figures of changes that nodes ask for, and of states that are removed."""
    yield Figure(
        "home_requests",
        "Changes of groups and cursors that this node asked homes at other nodes for.",
        {(outcome,): count for outcome, count in sorted(asking.outcomes.items())},
        ("outcome",),
        counter=True,
    )
    yield Figure(
        "home_requests_open",
        "Changes that this node waits for, and those that it makes for other nodes.",
        {("asked",): len(asking), ("made",): answering.running},
        ("side",),
    )
    yield Figure(
        "home_changes",
        "Changes that this node was asked for by other nodes, by the status of the outcome.",
        {(str(status),): count for status, count in sorted(answering.outcomes.items())},
        ("status",),
        counter=True,
    )
    yield Figure(
        "home_states_removed",
        "States of groups and cursors that were removed because their log is gone.",
        {(): sweeping.removed},
        counter=True,
    )


def description_figures(inquiring: Inquiring, describer: Describing) -> Iterator[Figure]:
    """The figures of lists and descriptions that need other homes."""
    yield Figure(
        "home_searches",
        "Lists and descriptions of groups and cursors that this node asked homes at other nodes for.",
        {(outcome,): count for outcome, count in sorted(inquiring.outcomes.items())},
        ("outcome",),
        counter=True,
    )
    yield Figure(
        "home_inquiries",
        "Inquiries of other nodes about groups and cursors, by what this node did.",
        {(outcome,): count for outcome, count in sorted(describer.outcomes.items())},
        ("outcome",),
        counter=True,
    )


def peer_figures(called: int, reached: int, reports: Unfinished, answers: Unfinished) -> Iterator[Figure]:
    """The figures of the connections with other nodes.

    `called`: nodes that report to this one; `reached`: homes that it reports to.
    """
    yield Figure(
        "home_peers",
        "Connections with other nodes: nodes that report to this one (in), homes it reports to (out).",
        {("in",): called, ("out",): reached},
        ("direction",),
    )
    sides = {("in",): reports, ("out",): answers}
    yield Figure(
        "home_unfinished_bytes",
        "Bytes of reports (in) and answers (out) of other nodes of which parts are missing.",
        {side: each.bytes for side, each in sides.items()},
        ("direction",),
    )
    yield Figure(
        "home_given_up",
        "Reports and answers that were given up because unfinished ones need too many bytes.",
        {side: each.given_up for side, each in sides.items()},
        ("direction",),
        counter=True,
    )
