"""Each warning appears with the fact that it is about, and only then; each has a remedy."""

from dataclasses import replace
from typing import Any

import pytest

from knative_gateway.health.facts import DESCRIPTORS, Gathered, Known, Use, Vitals
from knative_gateway.health.warnings import STORED_S_MAX, Facts, warnings

NOW = 1_700_000_000_000
GIB = 1 << 30
USES = {
    "connections": Use(10, 10_000),
    "pendingEvents": Use(0, 100),
    "pendingBytes": Use(0, 100),
    "subscriberConnections": Use(0, None),
    DESCRIPTORS: Use(10, 1000),
}
VITALS = Vitals(0, 1, leads=True, not_ready=None, memory=1, uses=USES, unstored_s=0.1)
KNOWN = Known(NOW, (), node_starts=1)
HEALTHY = Facts(
    NOW, Gathered(KNOWN, [VITALS]), disk_free=200 * GIB, disk_size=400 * GIB, certificate_expires_ms=2 * NOW
)


def of(**changes: Any) -> Facts:
    """A gateway with these values of the first worker, or of the parent."""
    known = replace(KNOWN, **{name: changes[name] for name in changes if hasattr(KNOWN, name)})
    vitals = replace(VITALS, **{name: changes[name] for name in changes if not hasattr(KNOWN, name)})
    return replace(HEALTHY, gathered=Gathered(known, [vitals]))


CASES = [
    ("not-ready", replace(HEALTHY, not_ready="starting"), True, "not ready: starting."),
    ("worker-silent", replace(HEALTHY, gathered=Gathered(KNOWN, [VITALS], [1, 2])), True, "workers 1, 2 did"),
    ("worker-restarts", of(restarts=1), False, "1 time."),
    ("node-restarts", of(node_starts=3), False, "2 times."),
    ("positions", of(unstored_s=STORED_S_MAX + 1), True, "for 11 s"),
    ("disk", replace(HEALTHY, disk_free=GIB), False, "1.0 GiB free of 400.0 GiB"),
    ("descriptors", of(uses=USES | {DESCRIPTORS: Use(900, 1000)}), False, "900 of 1,000"),
    ("limit-connections", of(uses={"connections": Use(8, 10)}), False, "8 of 10 connections from clients"),
    ("limit-pendingEvents", of(uses={"pendingEvents": Use(10, 10)}), True, "10 of 10 events"),
    ("limit-pendingBytes", of(uses={"pendingBytes": Use(9, 10)}), False, "9 of 10 bytes"),
    ("limit-subscriberConnections", of(uses={"subscriberConnections": Use(9, 10)}), False, "to subscribers"),
    ("certificate", replace(HEALTHY, certificate_expires_ms=NOW - 1), True, "has expired"),
    ("reload", of(reload_failed="tokens: gone"), False, "failed: tokens: gone."),
    ("restart", of(restart_needed=("listen", "tls.key")), False, "listen, tls.key"),
    ("no-tokens", replace(HEALTHY, is_open=True), False, "every client may"),
    ("plain-tokens", replace(HEALTHY, has_plain_tokens=True), False, "without encryption"),
    ("certificates-not-checked", replace(HEALTHY, trusts_all=True), False, "not checked"),
    ("public-url", replace(HEALTHY, urls_guessed="Others cannot reach it"), False, "Others cannot reach it."),
]


def test_a_healthy_gateway_has_no_warning() -> None:
    assert not warnings(HEALTHY)
    nothing = Vitals(0, 1, leads=True, not_ready=None, memory=None, uses={})
    assert not warnings(Facts(NOW, Gathered(Known(NOW, ()), [nothing])))


@pytest.mark.parametrize(("code", "facts", "is_error", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_warning_has_its_fact_and_its_remedy(code: str, facts: Facts, is_error: bool, words: str) -> None:
    (found,) = warnings(facts)
    assert (found.code, found.is_error) == (code, is_error)
    assert words in found.text
    assert found.text.endswith(".")
    assert found.remedy
    assert not found.remedy.endswith(".")


def test_errors_come_first() -> None:
    facts = replace(HEALTHY, is_open=True, not_ready="starting", disk_free=GIB)
    assert [each.code for each in warnings(facts)] == ["not-ready", "disk", "no-tokens"]
