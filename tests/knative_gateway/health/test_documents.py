"""The answer about the gateway: every figure has its place, and nothing is invented."""

import json

from amqp_streams.client import NodeInfo
from amqp_streams.client.management.node import NodeWarning
from knative_gateway.config import GatewaySettings
from knative_gateway.health.documents import GROUP_VERSION, document
from knative_gateway.health.facts import Gathered, Known, Use, Vitals
from knative_gateway.health.warnings import Facts
from service_parts.health.changes import Change
from service_parts.settings.showing import InForce

NOW = 1_764_000_000_000
KNOWN = Known(
    NOW - 5_500, (InForce("store", "postgresql://u:***@db/x", "--store"), InForce("workers", 2, "default"))
)
CHANGE = Change(NOW, "ann", "APPLY", "Trigger", "default/t", {"objects": "2"})
VITALS = [
    Vitals(0, 11, leads=True, not_ready=None, memory=5, uses={"connections": Use(1, 2)}, changes=(CHANGE,)),
    Vitals(1, 12, leads=False, not_ready="starting", memory=6, uses={"connections": Use(1, None)}),
]
FACTS = Facts(NOW, Gathered(KNOWN, VITALS, (2,)), not_ready="worker 1: starting", disk_free=3, disk_size=9)
SETTINGS = GatewaySettings(store="postgresql://u:secret@db/x")


def test_it_has_what_people_ask_for() -> None:
    found = document(FACTS, SETTINGS, "1.2.3", NodeInfo(version="1.2.2", ready=True, disk_free=1))
    assert (found["apiVersion"], found["kind"], found["version"]) == (GROUP_VERSION, "Gateway", "1.2.3")
    assert (found["ready"], found["notReady"], found["upSeconds"]) == (False, "worker 1: starting", 5)
    assert found["stateDatabase"] == "postgresql"
    assert found["workers"] == [
        {"worker": 0, "pid": 11, "ready": True, "notReady": None, "leads": True},
        {"worker": 1, "pid": 12, "ready": False, "notReady": "starting", "leads": False},
    ]
    assert found["silentWorkers"] == [2]
    figures = found["figures"]
    assert isinstance(figures, dict)
    assert (figures["memoryBytes"], figures["uses"]["connections"]) == (11, {"used": 2, "limit": 2})
    assert found["changes"] == [
        {"at": "2025-11-24T16:00:00Z", "user": "ann", "what": "APPLY", "type": "Trigger", "name": "default/t",
         "details": {"objects": "2"}}
    ]  # fmt: skip
    assert found["settings"] == [
        {"name": "store", "value": "postgresql://u:***@db/x", "source": "--store"},
        {"name": "workers", "value": 2, "source": "default"},
    ]
    assert "secret" not in json.dumps(found)


def test_the_log_node_says_what_it_knows_or_why_nothing_is_known() -> None:
    warned = NodeInfo(
        ready=False, not_ready="disk full", warnings=(NodeWarning("disk", "Full.", "free space", True),)
    )
    found = document(FACTS, GatewaySettings(), "1", warned)["node"]
    assert isinstance(found, dict)
    assert (found["unknown"], found["ready"], found["notReady"]) == (None, False, "disk full")
    assert found["warnings"] == [{"code": "disk", "text": "Full.", "remedy": "free space", "error": True}]
    assert document(FACTS, GatewaySettings(), "1", "it is away")["node"] == {"unknown": "it is away"}
