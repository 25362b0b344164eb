"""Errors of the operating system and of click as one sentence, without numbers of errors. Pure."""

import json

import click


def plain_sentence(error: BaseException) -> str:
    """Return the text of an error for people. For one of the operating system: file and reason."""
    # click's text names the option.
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return reason if error.filename is None else f"{error.filename}: {reason}"
    return str(error) or str(type(error).__doc__)


def json_line(sentence: str, condition: str | int | None) -> str:
    """Return an error as programs read it.

    `condition` is the code that they can compare: an AMQP condition or an HTTP status or null.
    """
    return json.dumps({"error": sentence, "condition": condition})
