"""Rules and dashboards ask for what nodes and gateways export, and a real Prometheus has answers.

Kafka has a test of its own: `test_observed_kafka.py`.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import promql_parser
import pytest

from amqp_streams.homes.changing.sweeping import Sweeping
from amqp_streams.homes.describing.describing import description
from amqp_streams.homes.leases import Times
from amqp_streams.homes.protocol.parts import Unfinished
from amqp_streams.kafka.brokers.figures import KafkaFigures
from amqp_streams.server.homes.answering import Answering
from amqp_streams.server.homes.describing import Describing
from amqp_streams.server.homes.figures import change_figures, description_figures, home_figures, peer_figures
from amqp_streams.storage.questions import Figure
from tests.deploy.promql import Exported, faults, metrics, result_labels
from tests.deploy.scene import Prometheus, Scene, configuration, labels_of, prometheus, wait_for
from tests.deploy.test_alerts import RULES, WITHOUT
from tests.deploy.test_dashboards import panels, read
from tests.homed_node import HomedNode

EMPTY = {
    "amqp_streams_faults_total": "a step of the regular work would have to fail",
    "ALERTS": "no alert fires",
    "knative_gateway_task_restarts_total": "a task would have to fail",
}
"""Metrics without a series in this scene, with the reason."""
KAFKA = "amqp_streams_kafka_", "amqp_streams_home_"
VALUES = {"$__rate_interval": "20s", "$__range": "5m", "[6h]": "[20s]"}


def queries(dashboard: str) -> dict[str, tuple[str, str]]:
    """Return each query of a dashboard with its legend, by a name for people."""
    found = read(dashboard)
    return {
        f"{panel['title']} {target['refId']}": (target["expr"], target["legendFormat"])
        for panel in panels(found)
        for target in panel["targets"]
    }


def chosen(query: str) -> str:
    """Return the query as Grafana sends it: with all values of each variable."""
    for name, value in VALUES.items():
        query = query.replace(name, value)
    return re.sub(r"\$\w+", ".*", query)


def of_kafka() -> str:
    """Return lines of `/metrics` of a node on Kafka, from the code that makes them."""
    figures = KafkaFigures()
    figures.statistics('{"brokers": {"a:9092/1": {"nodeid": 1, "state": "UP"}}}')
    return lines_of(figures.figures())


def of_homes() -> str:
    """Return lines of `/metrics` of a node that is a home, in the same way."""
    node, unfinished = HomedNode(), Unfinished(1)
    changes = node.homes.requests.changes
    answering = Answering(changes.carry_out, node.service.turns)
    describer = Describing(
        lambda inquiry: description(node.homes, lambda _: None, inquiry), node.service.turns
    )
    sweeping = Sweeping(node.homes, lambda _incarnation: None, Times())
    return lines_of(
        [
            *home_figures(node.homes.home, Times(), node.clock()),
            *peer_figures(0, 0, unfinished, unfinished),
            *change_figures(node.homes.asking, answering, sweeping),
            *description_figures(node.homes.inquiring, describer),
        ]
    )


def lines_of(figures: Iterable[Figure]) -> str:
    lines = []
    for figure in figures:
        labels = ",".join(f'{label}="x"' for label in figure.labels)
        name = f"amqp_streams_{figure.name}" + ("_total" if figure.counter else "")
        lines.append(f"# TYPE {name} untyped\n{name}{{{labels}}} 1\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("scene"), stack)


@pytest.fixture(scope="module")
def exported(scene: Scene) -> Exported:
    """What the processes export, once each metric of the traffic is there."""
    wanted = {
        "amqp_streams_deliveries_refused_total",
        "amqp_streams_group_lag_events",
        "amqp_streams_quota_waits_total",
        "knative_gateway_subscriber_request_seconds_count",
    }
    found: dict[str, set[str]] = {}

    def complete() -> bool:
        scene.traffic.go_on()
        found.update(labels_of(scene.pages()))
        return all(found.get(name) for name in wanted)

    wait_for(complete, lambda: sorted(found))
    return {
        # The label of the step appears with the first fault.
        "amqp_streams_faults_total": {"step"},
        "knative_gateway_task_restarts_total": {"task"},
        **labels_of([of_kafka(), of_homes()]),
        **found,
    }


@pytest.fixture(scope="module")
def server(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip(WITHOUT.replace("promtool", "prometheus"))
    config = configuration(scene.targets, scene.ca, scene.secure)
    with prometheus(tmp_path_factory.mktemp("prometheus"), config) as running:
        yield running


@pytest.mark.parametrize("alert", RULES)
def test_each_alert_uses_what_is_exported(alert: str, exported: Exported) -> None:
    rule = RULES[alert]
    assert faults(rule["expr"], exported) == []
    words = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", words)) <= result_labels(rule["expr"], exported)


@pytest.mark.parametrize("dashboard", ["node", "gateway", "kafka"])
def test_each_panel_uses_what_is_exported(dashboard: str, exported: Exported) -> None:
    for name, (query, legend) in queries(dashboard).items():
        assert faults(chosen(query), exported) == [], name
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert shown <= result_labels(chosen(query), exported), name
    for variable in read(dashboard)["templating"]["list"][1:]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert found is not None
        assert faults(chosen(found[1]), exported) == []
        assert found[2] in result_labels(chosen(found[1]), exported)


def test_a_name_that_is_not_exported_is_found(exported: Exported) -> None:
    """The check can fail."""
    assert faults("rate(amqp_streams_event_total[5m])", exported) == ["no metric amqp_streams_event_total"]
    assert faults('amqp_streams_ready{log="x"}', exported) == ["no label log in amqp_streams_ready"]
    assert faults("sum by (topic) (amqp_streams_events_total)", exported)
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum by (log (amqp_streams_events_total)")


def test_prometheus_scrapes_all_and_evaluates_each_alert(scene: Scene, server: Prometheus) -> None:
    def evaluated() -> bool:
        groups = server.ask("rules")["groups"]
        up = server.ask("query", query="up == 1")["result"]
        return len(up) == 1 + len(scene.targets) and all(
            rule["health"] == "ok" for group in groups for rule in group["rules"]
        )

    wait_for(evaluated, lambda: (server.ask("rules"), server.ask("targets")))
    rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == RULES.keys()
    # The certificates of the test are valid for two days, and a Trigger refuses events.
    expected = {
        "AmqpStreamsCertificateExpires",
        "KnativeGatewayCertificateExpires",
        "KnativeGatewayEventsDropped",
    }
    assert {each["labels"]["alertname"] for each in firing(server)} <= expected


def firing(server: Prometheus) -> Sequence[Mapping[str, Any]]:
    return [each for each in server.ask("alerts")["alerts"] if each["state"] == "firing"]


def test_an_alert_that_fires_has_the_words_of_its_rule(scene: Scene, server: Prometheus) -> None:
    found: list[Mapping[str, Any]] = []

    def fires() -> bool:
        scene.traffic.go_on()
        found[:] = [
            each
            for each in firing(server)
            if (each["labels"]["alertname"], each["labels"].get("name"))
            == ("KnativeGatewayEventsDropped", "bad")
        ]
        return bool(found)

    wait_for(fires, lambda: server.ask("alerts"))
    (alert,) = found
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["summary"] == "Events of Trigger default/bad were dropped"
    assert re.match(r"[\d.]+ events failed in 15 minutes", alert["annotations"]["description"])


@pytest.mark.parametrize("dashboard", ["node", "gateway"])
def test_each_panel_has_data(dashboard: str, scene: Scene, server: Prometheus) -> None:
    missing: Mapping[str, str] = {
        name: chosen(query)
        for name, (query, _) in queries(dashboard).items()
        if not any(metric.startswith(KAFKA) or metric in EMPTY for metric in metrics(chosen(query)))
    }

    def all_answered() -> bool:
        nonlocal missing
        scene.traffic.go_on()
        missing = {
            name: query for name, query in missing.items() if not server.ask("query", query=query)["result"]
        }
        return not missing

    wait_for(all_answered, lambda: json.dumps(missing, indent=1))


@pytest.mark.parametrize("dashboard", ["node", "gateway", "kafka"])
def test_prometheus_takes_each_query(dashboard: str, server: Prometheus) -> None:
    for query, _ in queries(dashboard).values():
        server.ask("query", query=chosen(query))
