"""The start of a replay has the same forms as `amqp-streams receive --from`."""

from datetime import UTC, datetime

import pytest

from knative_gateway.cli.starts import written_start
from knative_gateway.resources.objects import moment_ms

NOW = datetime(2026, 11, 21, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("earliest", "earliest"),
        ("new", "new"),
        ("latest", "new"),
        ("2026-11-21T06:30:00Z", "time=2026-11-21T06:30:00.000Z"),
        ("time=2026-11-21T08:30:00+02:00", "time=2026-11-21T06:30:00.000Z"),
        ("2026-11-21 06:30", "time=2026-11-21T06:30:00.000Z"),
        ("2026-11-21", "time=2026-11-21T00:00:00.000Z"),
        ("1795242600123", "time=2026-11-21T06:30:00.123Z"),
        ("now", "time=2026-11-21T06:30:00.000Z"),
        ("-1h30m", "time=2026-11-21T05:00:00.000Z"),
        ("-1d", "time=2026-11-20T06:30:00.000Z"),
        ("0:42", "offset=0=42"),
        ("0:42,1:40", "offset=0=42,1=40"),
        ("offset=0=42,1=40", "offset=0=42,1=40"),
    ],
)
def test_a_start_is_written_as_the_api_takes_it(text: str, written: str) -> None:
    assert written_start(text, NOW) == written
    if written.startswith("time="):
        assert moment_ms(written.removeprefix("time=")) is not None


@pytest.mark.parametrize("text", ["yesterday", "", "-", "42", "offset=42", "time=soon", "-1x", "99999-01-01"])
def test_a_text_that_is_not_a_start_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid start\. Use earliest, latest, a time"):
        written_start(text, NOW)
