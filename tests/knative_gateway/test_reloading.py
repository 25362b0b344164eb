"""What a reload of the gateway changes at once, and what it names for the next start."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from knative_gateway.config import GatewaySettings
from knative_gateway.reloading import warn_of_restart

OLD: dict[str, Any] = {"state_dir": Path("/s"), "listen": ["127.0.0.1:0"]}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, None),
        ({"tokens": Path("/t")}, None),
        ({"subscribers": {"ca": Path("/c")}}, None),
        ({"tokens": Path("/t"), "rules": [{"users": ["a"], "allow": ["read"]}]}, None),
        ({"workers": 3}, "workers"),
        ({"workers": 3, "limits": {"body": 5000}, "tokens": Path("/t")}, "limits.body, workers"),
        ({"tls": {"certificate": Path("/c"), "key": Path("/k")}}, "tls"),
        ({"subscribers": {"connections": 7}}, "subscribers.connections"),
    ],
)
def test_settings_that_need_a_restart_are_named(changes: dict[str, Any], names: str | None) -> None:
    old = GatewaySettings.model_validate(OLD)
    with capture_logs() as lines:
        warn_of_restart(old, GatewaySettings.model_validate(OLD | changes))
    assert [line["settings"] for line in lines] == ([] if names is None else [names])
    assert all((line["event"], line["log_level"]) == ("restart_needed", "warning") for line in lines)
