"""What a gateway says about itself, also if it says something else than expected."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.gateway.health.condition import condition_of

FULL: dict[str, Any] = {
    "version": "1.2.3", "ready": False, "notReady": "starting", "started": "2026-11-28T10:00:00Z",
    "upSeconds": 61, "stateDatabase": "SQLite",
    "workers": [{"worker": 0, "pid": 7, "ready": True, "notReady": None, "leads": True},
                {"worker": 1, "pid": 8, "ready": False, "notReady": None, "leads": False}],
    "figures": {"memoryBytes": 1 << 20, "diskFreeBytes": 1 << 30, "diskSizeBytes": 4 << 30,
                "positionsStoredSecondsAgo": 0.25,
                "uses": {"connections": {"used": 3, "limit": 10}, "newer": {"used": 1, "limit": 2},
                         "pendingBytes": {"used": 2048, "limit": None}}},
    "warnings": [{"code": "restart", "text": "T.", "remedy": "r", "error": True}],
    "changes": [{"at": "1970-01-01T00:00:01Z", "user": None, "what": "APPLY", "type": "Broker", "name": "d/b",
                 "details": {"objects": "2"}}],
    "settings": [{"name": "workers", "value": 2, "source": "default"},
                 {"name": "x", "value": None, "source": "default"},
                 {"name": "verify", "value": False, "source": "f.toml"}],
    "node": {"unknown": None, "version": "1.2.2", "ready": True, "commitSecondsP50": 0.002, "warnings": []},
}  # fmt: skip
NAMES = st.sampled_from(sorted(FULL))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


def test_everything_has_its_place() -> None:
    found = condition_of(FULL)
    assert (found.ready, found.not_ready, found.version) == (False, "starting", "1.2.3")
    assert (found.uptime_ms, found.database) == (61_000, "SQLite")
    assert [(each.pid, each.leads, each.not_ready) for each in found.workers] == [
        (7, True, ""),
        (8, False, "not ready"),
    ]
    rows = {each.name: (each.value, each.limit) for each in found.rows}
    assert rows["disk"] == ("1.0 GiB", "4.0 GiB")
    assert rows["connections"] == ("3", "10")
    assert rows["pendingBytes"] == ("2.0 KiB", "-")
    assert rows["positions"][0] == "250.0 ms"
    assert rows["commit_p50"][0] == "2.0 ms"
    assert rows["node_memory"][0] == "-"
    assert "newer" not in rows
    assert found.figures["connections"] == 3
    assert "node_memory" not in found.figures
    assert [(each.text, each.remedy, each.is_error) for each in found.warnings] == [("T.", "r", True)]
    assert (found.changes[0].at_ms, found.changes[0].user, found.changes[0].name) == (1000, None, "d/b")
    assert [each.value for each in found.settings] == ["2", None, "false"]
    assert (found.node.ready, found.node.version, found.node.unknown) == (True, "1.2.2", "")


def test_a_log_node_of_which_nothing_is_known_has_no_figures() -> None:
    found = condition_of({**FULL, "node": {"unknown": "it is away"}})
    assert found.node.unknown == "it is away"
    assert not any(each.name.startswith(("node_", "commit_")) for each in found.rows)


@given(st.dictionaries(NAMES, JSON))
def test_an_answer_with_other_values_is_shown_without_an_error(document: dict[str, Any]) -> None:
    condition_of(document)


@pytest.mark.parametrize("at", ["", "x", "9999-99-99T00:00:00Z", 5, None, "0001-01-01T00:00:00"])
def test_a_time_that_is_none_is_not_shown(at: object) -> None:
    (change,) = condition_of({"changes": [{"at": at}]}).changes
    assert change.at_ms is None or at == "0001-01-01T00:00:00"
