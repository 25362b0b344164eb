"""How to read an event with other programs, and how to send it again."""

import ast
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.showing.snippets import CURL_MAX, Reader, as_command, as_curl, as_python

URL = "http://gateway/broker/default/weather"
NAMES = [("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t")]


def _words(command: str) -> list[str]:
    """The words of a command, as a shell joins its lines."""
    return shlex.split(command.replace(" \\\n  ", " "))


def test_names_are_quoted_for_the_shell_and_for_python() -> None:
    command = as_command("amqp://n:5672", "a; rm -rf /", "0", 42, Reader())
    assert shlex.split(command)[2] == "a; rm -rf /"
    assert "--from 42 --max 1" in command
    assert "user" not in command
    program = as_python("amqp://n:5672", "it's", "0", 42, Reader())
    ast.parse(program)
    assert '"it\'s"' in program
    assert "42, 43" in program


@pytest.mark.parametrize(
    ("reader", "hint", "user", "login"),
    [
        (Reader("it's"), "AMQP_STREAMS_PASSWORD", ["--user", "it's"], ["user", "password"]),
        (Reader(with_token=True), "AMQP_STREAMS_TOKEN", [], ["sasl"]),
        (Reader(), "", [], []),
    ],
)
def test_the_copied_texts_log_in_like_the_person(
    reader: Reader, hint: str, user: list[str], login: list[str]
) -> None:
    assert hint in reader.hint
    words = shlex.split(as_command("amqp://n:5672", "a", "0", 42, reader))
    assert words == [
        *("amqp-streams", "receive", "a", "--url", "amqp://n:5672", *user),
        *("--partition", "0", "--from", "42", "--max", "1"),
    ]
    tree = ast.parse(as_python("amqp://n:5672", "a", "0", 42, reader))
    (call,) = (
        each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func) == "connect"
    )
    assert [each.arg for each in call.keywords] == login
    assert hint in ast.unparse(call)


def test_an_event_is_sent_in_binary_mode() -> None:
    command = as_curl(URL, [*NAMES, ("datacontenttype", "application/json")], '{"a": "it\'s"}').command
    assert _words(command) == [
        *("curl", "-X", "POST", "--globoff", URL),
        *("-H", "ce-specversion: 1.0", "-H", "ce-id: 1", "-H", "ce-source: /s", "-H", "ce-type: t"),
        *("-H", "content-type: application/json", "--data-raw", '{"a": "it\'s"}'),
    ]


def test_values_are_encoded_as_the_binding_says() -> None:
    words = _words(as_curl(URL, [*NAMES, ("x", 'é "%'), ("empty", "")], "").command)
    assert "ce-x: %C3%A9%20%22%25" in words
    assert "ce-empty;" in words
    assert "content-type:" in words


@pytest.mark.parametrize("data", [None, "\x1b[2J", "a\tb", "a\r\n", "\u202ex", "\x00"])
def test_data_that_is_not_text_for_a_terminal_is_in_a_file(data: str | None) -> None:
    found = as_curl(URL, NAMES, data)
    assert _words(found.command)[-2:] == ["--data-binary", "@event-data.bin"]
    assert "event-data.bin" in found.hint


@pytest.mark.parametrize(
    ("url", "attributes", "words"),
    [
        (URL, [("id", "a\nb")], "the attribute id has control characters"),
        (URL, [("id", "\x1b[201~")], "control characters"),
        (URL, [("id", "\x9b")], "control characters"),
        (URL, [("id", "\ud800")], "control characters"),
        (URL, [("datacontenttype", "a\rb")], "control characters"),
        (URL, [("datacontenttype", "é")], "not ASCII"),
        (URL, [("x'; ls #", "1")], "the name of an attribute"),
        (URL, [("x" * CURL_MAX, "1")], "characters"),
        ("file:///etc/passwd", NAMES, "not an http or https URL"),
        ("http://a\n", NAMES, "not an http or https URL"),
        ("", NAMES, "not an http or https URL"),
    ],
)
def test_what_a_command_must_not_have_is_refused(
    url: str, attributes: list[tuple[str, str]], words: str
) -> None:
    found = as_curl(url, attributes, "")
    assert not found.command
    assert words in found.problem


@given(st.text(), st.text())
def test_nothing_of_an_event_leaves_its_quotes_or_acts_on_a_terminal(value: str, data: str) -> None:
    found = as_curl(URL, [("id", value), ("datacontenttype", value)], data, with_token=True)
    if found.problem:
        return
    assert all(each.isprintable() or each == "\n" for each in found.command)
    words = _words(found.command)
    assert words[:5] == ["curl", "-X", "POST", "--globoff", URL]
    assert [words[at] for at in (5, 7, 9)] == ["-H"] * 3
    assert words[6].startswith("ce-id")
    assert words[8] == f"content-type: {value}"
    assert words[10] == "authorization: Bearer $TOKEN"
    assert words[11:] in (["--data-raw", data], ["--data-binary", "@event-data.bin"])


def test_a_shell_runs_the_command_and_nothing_else(tmp_path: Path) -> None:
    """A program with the name curl prints its arguments."""
    (tmp_path / "curl").write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    (tmp_path / "curl").chmod(0o755)
    hostile = "'; touch owned; $(touch owned) `touch owned` !! \\"
    found = as_curl(URL, [*NAMES, ("datacontenttype", hostile)], f"@/etc/passwd {hostile}\n{hostile}")
    ran = subprocess.run(
        ["/bin/sh", "-c", found.command],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = ran.stdout.split("\0")[:-1]
    assert words[-2:] == ["--data-raw", f"@/etc/passwd {hostile}\n{hostile}"]
    assert f"content-type: {hostile}" in words
    assert not (tmp_path / "owned").exists()
