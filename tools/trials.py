"""Use an installation for what it is for: send and receive events, run a node, a gateway, a Spark job."""

import http.client
import json
import os
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from examples.gateway import GatewayProcess
from examples.node import NodeProcess

COMMAND_S_MAX: Final = 300.0
EVENTS: Final = 3
_BROKER: Final = json.dumps(
    {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "weather"}}
)
_CLOUD_EVENT: Final = {
    "ce-specversion": "1.0",
    "ce-type": "temperature.measured",
    "ce-source": "roof",
    "ce-id": "1",
    "content-type": "text/plain",
}
_CLIENT: Final = """
import sys
from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect
with connect(sys.argv[1]) as client:
    with client.producer("temps") as producer:
        for number in range(int(sys.argv[2])):
            producer.send(Event(str(number)))
    with client.consumer("temps", start=EARLIEST) as consumer:
        print(consumer.receive(max_events=1)[0].body)
"""
_SPARK: Final = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("amqpstreams").option("endpoint", sys.argv[1]).load("temps").collect()
print(sorted(bytes(row.body).decode() for row in rows))
spark.stop()
"""


class TrialError(Exception):
    """An installation does not do what it is for."""


class InstalledNode(NodeProcess):
    """A node of an environment."""

    def __init__(self, environment: Path, folder: Path) -> None:
        super().__init__(folder, log="temps:2")
        self._programs: Final = environment / "bin"

    def command(self) -> list[str]:
        """See `NodeProcess.command`."""
        return [str(self._programs / "amqp-streams"), *super().command()[1:]]

    def environment(self) -> dict[str, str]:
        """See `variables`."""
        return variables(self._programs.parent)


class InstalledGateway(GatewayProcess):
    """A gateway of an environment."""

    def __init__(self, environment: Path, folder: Path) -> None:
        super().__init__(folder)
        self._programs: Final = environment / "bin"

    def command(self) -> list[str]:
        """See `NodeProcess.command`."""
        return [str(self._programs / "knative-gateway"), *super().command()[1:]]

    def environment(self) -> dict[str, str]:
        """See `variables`."""
        return variables(self._programs.parent)


def variables(environment: Path) -> dict[str, str]:
    """The variables of an installation: its programs only, so no compiler; no settings for other Pythons."""
    left = ("PYTHON", "VIRTUAL_ENV", "AMQP_STREAMS_", "KNATIVE_GATEWAY_", "SPARK_", "PIP_FIND_LINKS", "CC")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    return {**kept, "PATH": str(environment / "bin")}


def ran(environment: Path, program: str, *words: str, more: Mapping[str, str] | None = None) -> str:
    """Run a program of an environment; what it prints.

    Raises:
        TrialError: it fails.
    """
    done = subprocess.run(
        [str(environment / "bin" / program), *words],
        env={**variables(environment), **(more or {})},
        input="20.5\n",
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    if done.returncode:
        message = f"{program} {' '.join(words)[:200]} ended with {done.returncode}: {done.stderr[-4000:]}"
        raise TrialError(message)
    return done.stdout


def expect(wanted: object, found: object, what: str) -> None:
    """Check a result.

    Raises:
        TrialError: it is another one.
    """
    if wanted != found:
        message = f"{what}: expected {wanted!r}, found {found!r}"
        raise TrialError(message)


def try_node(environment: Path, folder: Path) -> None:
    """Start a node, send it an event, stop it, start it again, and receive the event."""
    with InstalledNode(environment, folder) as node:
        ran(environment, "amqp-streams", "--version")
        url = {"AMQP_STREAMS_URL": node.url}
        ran(environment, "amqp-streams", "send", "temps", "--key", "kitchen", more=url)
        expect(0, node.stop(), "exit status of the node")
    with InstalledNode(environment, folder) as node:
        words = ("receive", "temps", "--from", "earliest", "--max", "1", "--format", "json")
        told = ran(environment, "amqp-streams", *words, more={"AMQP_STREAMS_URL": node.url})
        expect("20.5", json.loads(told)["body"], "the event after a restart of the node")


def try_client(environment: Path, url: str) -> None:
    """Send and receive in Python, and by commands."""
    told = ran(environment, "python", "-c", _CLIENT, url, str(EVENTS))
    expect("0\n", told, "the first event")
    words = ("receive", "temps", "--from", "earliest", "--max", str(EVENTS), "--format", "json")
    told = ran(environment, "amqp-streams", *words, more={"AMQP_STREAMS_URL": url})
    expect(EVENTS, len(told.splitlines()), "number of events")


def try_gateway(environment: Path, folder: Path) -> None:
    """Start a gateway with its node, apply a Broker, send it an event over HTTP, receive it over AMQP."""
    with InstalledGateway(environment, folder) as gateway:
        url = {"KNATIVE_GATEWAY_URL": gateway.base_url}
        manifest = folder / "broker.json"
        manifest.write_text(_BROKER)
        ran(environment, "knative-gateway", "apply", "-f", str(manifest), more=url)
        ran(environment, "knative-gateway", "wait", "broker/weather", more=url)
        connection = http.client.HTTPConnection(gateway.http, timeout=COMMAND_S_MAX)
        connection.request("POST", "/broker/default/weather", body="21", headers=_CLOUD_EVENT)
        expect(202, connection.getresponse().status, "status of the event")
        connection.close()
        words = ("receive", "broker.default.weather", "--from", "earliest", "--max", "1", "--format", "json")
        told = ran(environment, "amqp-streams", *words, more={"AMQP_STREAMS_URL": gateway.url})
        expect("21", json.loads(told)["body"], "the event of the Broker")


def try_spark(environment: Path, url: str, java: str) -> None:
    """Read, in a Spark job, the events that `try_client` has sent. `java`: the program."""
    more = {"PATH": f"{environment / 'bin'}{os.pathsep}{Path(java).parent}"}
    # Spark's scripts use the tools of the system, which has no compiler in the folder of Java's name.
    more["PATH"] += f"{os.pathsep}/usr/bin{os.pathsep}/bin"
    more["PYSPARK_PYTHON"] = str(environment / "bin" / "python")
    told = ran(environment, "python", "-c", textwrap.dedent(_SPARK), url, more=more)
    expect(str([str(number) for number in range(EVENTS)]), told.splitlines()[-1], "the rows in Spark")


@contextmanager
def timed(what: str, report: Callable[[str], None]) -> Iterator[None]:
    """Report what is done, with its time."""
    began = time.monotonic()
    yield
    report(f"{what}: {time.monotonic() - began:.1f} s")
