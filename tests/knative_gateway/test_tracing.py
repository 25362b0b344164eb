"""Whether spans are exported, and where. Their contents: `ingress/test_traced.py`,
`dispatcher/test_traced.py`.
"""

import pytest

from knative_gateway.errors import ConfigError
from knative_gateway.tracing import are_asked_for, exporting


def test_traces_are_made_when_they_are_asked_for_only() -> None:
    assert not are_asked_for(None, {})
    assert are_asked_for("http://127.0.0.1:4318", {})
    assert are_asked_for(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
    assert not are_asked_for("http://127.0.0.1:4318", {"OTEL_SDK_DISABLED": "true"})
    assert not are_asked_for(
        None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}
    )


def test_spans_are_sent_to_the_collector_that_is_set() -> None:
    provider = exporting("http://127.0.0.1:9/", {})
    try:
        assert provider.resource.attributes["service.name"] == "knative-gateway"
    finally:
        provider.shutdown()
    with pytest.raises(ConfigError, match="jaeger"):
        exporting(None, {"OTEL_TRACES_EXPORTER": "jaeger"})
