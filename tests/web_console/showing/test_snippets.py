"""How to read an event with other programs."""

import ast
import shlex

from web_console.showing.snippets import as_command, as_python


def test_names_are_quoted_for_the_shell_and_for_python() -> None:
    command = as_command("amqp://n:5672", "a; rm -rf /", "0", 42)
    assert shlex.split(command)[2] == "a; rm -rf /"
    assert "--from 42 --max 1" in command
    program = as_python("amqp://n:5672", "it's", "0", 42)
    ast.parse(program)
    assert '"it\'s"' in program
    assert "42, 43" in program
