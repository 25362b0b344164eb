"""An error is a sentence without numbers of the operating system, or one line of JSON."""

import json

import click
import pytest

from service_parts.command_line.wording import json_line, plain_sentence


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(2, "No such file or directory", "x.pem"), "x.pem: No such file or directory"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OSError("no disk"), "no disk"),
        (TimeoutError(), "TimeoutError"),
        (click.BadParameter("too large", param_hint="'--to'"), "Invalid value for '--to': too large"),
        (ValueError("no such log"), "no such log"),
        (KeyError(), "Mapping key not found."),
    ],
)
def test_an_error_is_one_sentence(error: Exception, sentence: str) -> None:
    assert plain_sentence(error) == sentence


@pytest.mark.parametrize("condition", ["amqp:not-found", 404, None])
def test_an_error_is_one_line_for_programs(condition: str | int | None) -> None:
    line = json_line("no log named 'ä'\n", condition)
    assert "\n" not in line
    assert json.loads(line) == {"error": "no log named 'ä'\n", "condition": condition}
