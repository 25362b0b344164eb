"""The answer about the gateway as a document. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from amqp_streams.client import NodeInfo
from knative_gateway.config import GatewaySettings
from knative_gateway.health.facts import Use
from knative_gateway.health.warnings import Facts, warnings
from knative_gateway.resources.objects import timestamp
from service_parts.health.changes import Change
from service_parts.health.warned import Warned
from service_parts.settings.showing import InForce

GROUP_VERSION: Final = "gateway.knative.dev/v1"
KIND: Final = "Gateway"


def document(
    facts: Facts, settings: GatewaySettings, version: str, node: NodeInfo | str
) -> Mapping[str, object]:
    """Return the document. `node`: what the log node says about itself, or why this is not known."""
    gathered = facts.gathered
    known = gathered.known
    return {
        "kind": KIND,
        "apiVersion": GROUP_VERSION,
        "version": version,
        "ready": facts.not_ready is None,
        "notReady": facts.not_ready,
        "now": timestamp(facts.now_ms),
        "started": timestamp(known.started_ms),
        "upSeconds": max(0, facts.now_ms - known.started_ms) // 1000,
        "stateDatabase": "SQLite" if settings.store is None else settings.store.partition(":")[0],
        "workers": [
            {
                "worker": each.worker,
                "pid": each.pid,
                "ready": each.not_ready is None,
                "notReady": each.not_ready,
                "leads": each.leads,
            }
            for each in gathered.vitals
        ],
        "silentWorkers": list(gathered.silent),
        "figures": {
            "memoryBytes": gathered.memory,
            "diskFreeBytes": facts.disk_free,
            "diskSizeBytes": facts.disk_size,
            "positionsStoredSecondsAgo": gathered.unstored_s,
            "uses": {name: _use(use) for name, use in gathered.uses.items()},
        },
        "warnings": _warnings(warnings(facts)),
        "changes": [_change(each) for each in gathered.changes],
        "settings": [_setting(each) for each in known.settings],
        "node": _node(node),
    }


def _use(use: Use) -> Mapping[str, object]:
    return {"used": use.used, "limit": use.limit}


def _warnings(found: Iterable[Warned]) -> list[Mapping[str, object]]:
    return [
        {"code": each.code, "text": each.text, "remedy": each.remedy, "error": each.is_error}
        for each in found
    ]


def _change(change: Change) -> Mapping[str, object]:
    return {
        "at": timestamp(change.at_ms),
        "user": change.user,
        "what": change.what,
        "type": change.type,
        "name": change.name,
        "details": dict(change.details),
    }


def _setting(row: InForce) -> Mapping[str, object]:
    return {"name": row.name, "value": row.value, "source": row.source}


def _node(node: NodeInfo | str) -> Mapping[str, object]:
    if isinstance(node, str):
        return {"unknown": node}
    return {
        "unknown": None,
        "version": node.version,
        "ready": node.ready,
        "notReady": node.not_ready,
        "memoryBytes": node.memory,
        "diskFreeBytes": node.disk_free,
        "diskSizeBytes": node.disk_size,
        "commitSecondsP50": node.commit_p50_s,
        "commitSecondsP99": node.commit_p99_s,
        "warnings": [
            {"code": each.code, "text": each.text, "remedy": each.remedy, "error": each.is_error}
            for each in node.warnings
        ],
    }
