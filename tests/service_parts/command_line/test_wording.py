"""An error is a sentence without numbers of the operating system, or one line of JSON."""

import json

import click
import pytest

from service_parts.command_line.wording import json_line, plain_sentence, printable_json


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


ACTING = [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029]
ACTING += [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("code", ACTING)
def test_no_character_of_json_acts_on_a_terminal(code: int, ascii_only: bool) -> None:
    """U+009B begins an escape sequence on some terminals, and U+202E turns the text around."""
    value = {"container": f"a{chr(code)}ä"}
    text = printable_json(value, ascii_only=ascii_only)
    assert text.isprintable()
    assert json.loads(text) == value
    assert ("ä" in text) is not ascii_only
    assert json_line(chr(code), None).isprintable()
