"""Every operation, limit, timer, endpoint, listener and remote of the product has an attack.

The inventory is read from the code of the product: a new entry there fails this test until an attack is
added.
"""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from attack import inventory
from attack.elsewhere import INSIDE, NOT_POSSIBLE, SHOWN_BY, WITHOUT_PEER
from attack.tables import all_attacks

ROOT = Path(__file__).parent.parent.parent
TABLES: dict[str, Callable[[], frozenset[str]]] = {
    "requests": inventory.requests,
    "resources": inventory.resources,
    "timers": inventory.timers,
    "listeners": inventory.listeners,
    "remotes": inventory.remotes,
    "strangers": inventory.strangers,
}


def covered() -> frozenset[str]:
    return frozenset().union(*(attack.covers for attack in all_attacks()))


def everything() -> frozenset[str]:
    return frozenset().union(*(made() for made in TABLES.values())) | inventory.constants().keys()


@pytest.mark.parametrize("table", TABLES)
def test_each_entry_of_the_inventory_has_an_attack_or_a_test(table: str) -> None:
    missing = TABLES[table]() - covered() - SHOWN_BY.keys() - NOT_POSSIBLE.keys()
    assert not missing, "write an attack that covers these, or say in attack/elsewhere.py what does"


def test_the_inventory_knows_what_the_product_has() -> None:
    """An inventory that finds nothing would need no attacks."""
    assert "$management event-log EXTENTS" in inventory.requests()
    assert "performative transfer" in inventory.requests()
    assert "attach Consuming" in inventory.requests()
    assert "node GET /metrics" in inventory.requests()
    assert "gateway eventing.knative.dev/v1/triggers deletecollection" in inventory.requests()
    assert "gateway action redrive" in inventory.requests()
    assert "gateway limits: body" in inventory.resources()
    assert "node limits: pending_bytes" in inventory.resources()
    assert "node limits: idle_timeout_ms" in inventory.timers()
    assert "gateway subscribers: timeout" in inventory.timers()
    assert len(inventory.constants()) > 100


def test_each_constant_that_is_a_limit_or_a_time_is_attacked_tested_or_explained() -> None:
    named = names_in_tests()
    missing = {
        constant: line
        for constant, line in inventory.constants().items()
        if constant not in covered() and constant not in INSIDE and constant.partition(":")[2] not in named
    }
    assert not missing, "attack it, name it in a test of its limit, or say in attack/elsewhere.py why not"


@cache
def names_in_tests() -> frozenset[str]:
    """The words of all test files."""
    sources = (path.read_text() for folder in ("tests", "fuzz") for path in (ROOT / folder).rglob("*.py"))
    return frozenset(word for source in sources for word in re.findall(r"\b_?[A-Z][A-Z0-9_]+\b", source))


def test_nothing_is_covered_that_the_product_does_not_have() -> None:
    assert not covered() - everything()
    assert not (SHOWN_BY.keys() | NOT_POSSIBLE.keys() | INSIDE.keys()) - everything()
    assert not (SHOWN_BY.keys() | NOT_POSSIBLE.keys()) & covered()
    assert set(INSIDE.values()) <= WITHOUT_PEER.keys()


@pytest.mark.parametrize("test", sorted(set(SHOWN_BY.values())))
def test_what_is_shown_elsewhere_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    functions = {
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in functions


def test_attacks_have_names_of_their_own() -> None:
    names = [attack.name for attack in all_attacks()]
    assert len(set(names)) == len(names)
