"""The dashboard of Kafka has data from a node that keeps its logs in real brokers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from bench.products.kafka_cluster import Cluster
from examples.node import NodeProcess
from tests.acceptance.kafka_nodes import LOG, start
from tests.deploy.scene import configuration, got, labels_of, prometheus, wait_for
from tests.deploy.test_alerts import WITHOUT
from tests.deploy.test_observed import chosen, of_homes, of_kafka, queries

__all__ = ["start"]

LATER = {"amqp_streams_kafka_errors_total", "amqp_streams_home_changes_total"}
"""They appear with the first error, and with the first request of another node."""


def test_the_dashboard_of_kafka_has_data(
    kafka: Cluster, start: Callable[..., NodeProcess], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 40 + "\n")
    homes = ("--node-listen", "127.0.0.1:0", "--node-secret-file", str(secret))
    node = start("a", "--admin-listen", "127.0.0.1:0", *homes)
    address = node.addresses["admin"][0]
    with connect(node.url) as client, client.producer(LOG) as producer:
        producer.send(Event(b"x"))
    made = labels_of([of_kafka(), of_homes()]).keys() - LATER
    # librdkafka reports about its brokers every five seconds.
    wait_for(
        lambda: labels_of([got(f"http://{address}/metrics")]).keys() >= made,
        lambda: got(f"http://{address}/metrics"),
    )
    if shutil.which("prometheus") is None:
        pytest.skip(WITHOUT.replace("promtool", "prometheus"))
    targets = {"amqp-streams": [address], "knative-gateway": []}
    config = configuration(targets, tmp_path / "none", "127.0.0.1:1")
    config["scrape_configs"][1:] = []
    missing = {
        name: chosen(query)
        for name, (query, _) in queries("kafka").items()
        if "errors_total" not in query and "timeouts" not in query
    }
    with (
        prometheus(tmp_path, config) as server,
        connect(node.url) as client,
        client.producer(LOG) as producer,
        # The panels about homes need a link in a group.
        client.group_consumer(LOG, "g"),
    ):

        def all_answered() -> bool:
            producer.send(Event(b"x"))
            for name, query in list(missing.items()):
                if server.ask("query", query=query)["result"]:
                    del missing[name]
            return not missing

        wait_for(all_answered, lambda: json.dumps(missing, indent=1))
