"""What commands print does not act on a terminal if programs read it."""

import json

import pytest

from knative_gateway.cli.output import complain, report

ACTING = "a\x1b\x7f\x9b31m\u202e"


def test_reports_and_errors_as_json_have_no_character_that_acts_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report("done", as_json=True, name=ACTING)
    complain("trigger", ValueError(ACTING), as_json=True)
    written = capsys.readouterr()
    assert json.loads(written.out) == {"name": ACTING}
    assert json.loads(written.err)["error"] == f"trigger: {ACTING}"
    for line in (written.out, written.err):
        assert line.removesuffix("\n").isprintable()
