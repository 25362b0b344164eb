"""The second half of `make demo`: the same temperatures as CloudEvents, POSTed to a Broker and pushed on to
subscribers that fail.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer
from examples.temperatures.telling import check, say, title

BROKER: Final = "weather"
LOG: Final = f"broker.default.{BROKER}"
HOT: Final = 75.0
SENDERS: Final = 8
FAILURES: Final = 50
"""Requests that the live subscriber answers with 503 before it takes any."""

RESOURCES: Final = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: weather, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: hot, namespace: default}}
spec:
  broker: weather
  filters:
    - exact: {{type: temperature.measured}}
    - cesql: "INT(fahrenheit) >= {hot}"
  subscriber: {{uri: "{live}"}}
  delivery: {{retry: 20, backoffPolicy: exponential, backoffDelay: PT0.1S, backoffMax: PT1S}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: new-years-eve, namespace: default}}
spec:
  broker: weather
  filter: {{attributes: {{day: "2010/12/31"}}}}
  subscriber: {{uri: "{broken}"}}
  delivery: {{retry: 1, backoffPolicy: linear, backoffDelay: PT0.05S, deadLetterSink: {{uri: "{sink}"}}}}
"""


def through_the_gateway(rows: Sequence[str]) -> None:
    """Show it; ends the program if a promise is broken."""
    with ExitStack() as open_, tempfile.TemporaryDirectory(prefix="knative-gateway-demo-") as folder:
        live, broken, sink = (open_.enter_context(SubscriberServer()) for _ in range(3))
        live.decide = lambda _: 503 if len(live.requests) < FAILURES else 202
        broken.decide = lambda _: 500
        title("A gateway on this machine, with a log node of its own")
        gateway = open_.enter_context(GatewayProcess(Path(folder)))
        say(f"knative-gateway serve --state-dir {gateway.data_dir}")
        say(
            f"process {gateway.pid}, {gateway.base_url}; its log node: process {gateway.node_pid},"
            f" {gateway.url}"
        )
        gateway.apply(RESOURCES.format(hot=int(HOT), live=live.url, broken=broken.url, sink=sink.url))
        say("applied: the Broker `weather`, the Triggers `hot` and `new-years-eve`; all of them Ready")
        title(f"POST the same {len(rows):,} temperatures as CloudEvents to the Broker")
        post_all(gateway, rows)
        title(
            f"A Trigger takes those of {HOT:.0f} °F and more; its subscriber fails {FAILURES} times at first"
        )
        to_the_live_one(live, rows)
        title("Another Trigger's subscriber always fails: its events go to the dead letter sink")
        to_the_sink(broken, sink, rows)
        title("An AMQP client reads the same events from the Broker's log")
        over_amqp(gateway, rows)
        check(gateway.stop() == 0, "SIGTERM: gateway and node ended, with 0")


def post_all(gateway: GatewayProcess, rows: Sequence[str]) -> None:
    """Each row is an event: when, how hot; the day is its key, so a day's events keep their order."""
    began = time.monotonic()

    def some(share: Sequence[str]) -> int:
        sender = Sender(gateway.http, f"/broker/default/{BROKER}")
        accepted = sum(sender.send(attributes(row), row.encode(), "text/csv") == 202 for row in share)
        sender.close()
        return accepted

    with ThreadPoolExecutor(SENDERS) as pool:
        accepted = sum(pool.map(some, [rows[first::SENDERS] for first in range(SENDERS)]))
    check(accepted == len(rows), f"{accepted:,} times 202: each of them is on the disk")
    say(
        f"{len(rows) / (time.monotonic() - began):,.0f} a second, from {SENDERS} senders that wait for each"
        " answer"
    )


def attributes(row: str) -> dict[str, str]:
    """Of the event: `id` is when it was measured."""
    moment, degrees = row.split(",")
    known = {
        "id": moment,
        "source": "/noaa/seattle",
        "type": "temperature.measured",
        "day": moment[:10],
        "partitionkey": moment[:10],
    }
    return {**known, "fahrenheit": f"{float(degrees):.0f}"}


def is_hot(row: str) -> bool:
    """What the first Trigger's filter says."""
    return int(attributes(row)["fahrenheit"]) >= HOT


def to_the_live_one(live: SubscriberServer, rows: Sequence[str]) -> None:
    """All that matches, nothing else, though it failed."""
    wanted = {row for row in rows if is_hot(row)}
    live.wait(lambda server: {one.data.decode() for one in server.requests if one.status == 202} >= wanted)
    taken = [one.data.decode() for one in live.taken]
    failed = sum(one.status == 503 for one in live.requests)
    check(set(taken) == wanted, f"{len(wanted):,} events taken, and no other, after {failed} answers of 503")
    check(len(taken) == len(wanted), "each of them once")
    say(
        f"the first: {live.taken[0].data.decode()!r}, {live.taken[0].headers['content-type']},"
        f" {dict(live.taken[0].attributes)}"
    )


def to_the_sink(broken: SubscriberServer, sink: SubscriberServer, rows: Sequence[str]) -> None:
    """Every event is there, with what became of it."""
    wanted = {row for row in rows if row.startswith("2010/12/31")}
    sink.wait(lambda server: {one.data.decode() for one in server.requests} >= wanted)
    letters = sink.taken
    attempts = len(broken.requests)
    check(
        {one.data.decode() for one in letters} == wanted,
        f"{len(wanted)} events of New Year's Eve in the sink, after {attempts} attempts",
    )
    told = {
        name: letters[0].attributes[name]
        for name in ("knativeerrorcode", "knativeerrordest", "knativeerrordata", "deadletterretry")
    }
    say(f"what it says of one: {told}")
    check(
        all(one.attributes["knativeerrorcode"] == "500" for one in letters),
        "each with the code of its last answer",
    )


def over_amqp(gateway: GatewayProcess, rows: Sequence[str]) -> None:
    """By our own command line; any AMQP 1.0 client does."""
    print(f"  $ amqp-streams receive {LOG} --from earliest")
    program = str(Path(sys.executable).parent / "amqp-streams")
    environment = {**os.environ, "AMQP_STREAMS_URL": gateway.url}
    command = [program, "receive", LOG, "--from", "earliest", "--format", "json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, timeout=60)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    check(sorted(one["body"] for one in events) == sorted(rows), f"{len(events):,} events, the same data")
    say(f"one of them: {events[0]}")
