"""`make reference` and `make man`: pages about every command, from the help of the commands.

The reference page of a program is Markdown in docs/reference/. The man pages are in build/man/man1, one for
each command: `man -l build/man/man1/amqp-streams-log-create.1`.
"""

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from amqp_streams import __version__
from amqp_streams.cli import main as node_main
from amqp_streams.cli.connection import ConnectionOption
from knative_gateway.cli import main as gateway_main

MAN: Final = Path(__file__).parent.parent / "build" / "man" / "man1"
WIDTH_MAX: Final = 110
PROGRAMS: Final[dict[str, click.Group]] = {"amqp-streams": node_main, "knative-gateway": gateway_main}
_GATEWAY_CONNECTION: Final = frozenset({"server", "context", "token", "ca"})
_VERBATIM: Final = "\b"
_EXIT_STATUSES: Final = (
    ("0", "The command succeeded."),
    ("1", "The command failed."),
    ("2", "The command line or a setting is not valid."),
    ("130", "The command was interrupted."),
)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A part of a help text. `lines` of a verbatim part are not wrapped."""

    lines: tuple[str, ...]
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """What is known about one command. `options`: flags and meaning; `connection`: those of a connection."""

    words: tuple[str, ...]
    usage: str
    summary: str
    paragraphs: tuple[Paragraph, ...]
    examples: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    connection: tuple[tuple[str, str], ...]
    inner: tuple[str, ...]

    @property
    def name(self) -> str:
        """The whole command: `amqp-streams log create`."""
        return " ".join(self.words)


def commands(program: str) -> list[Command]:
    """Return the commands of a program, the program first."""
    main = PROGRAMS[program]
    context = click.Context(main, info_name=program, **main.context_settings)
    return list(_walked(context, main, (program,)))


def page_of(program: str) -> str:
    """The name of a program's page in docs/reference/."""
    return f"{program}.md"


def page(program: str) -> str:
    """Return the reference page of a program, with a new line at its end."""
    found = commands(program)
    connection = next(one.connection for one in found if one.connection)
    lines = [
        f"# Commands of `{program}`",
        "",
        "<!-- Written by `make reference` from the code: change the help of the commands, not this page. -->",
        "",
        "[Command line](../command-line.md) has what all commands share. `--help` prints the text of a",
        "command, and `make man` writes man pages.",
        "",
    ]
    lines += [f"* [`{one.name}`](#{_anchor(one)})" for one in found[1:]]
    lines.append("* [Options of a connection](#options-of-a-connection)")
    for one in found:
        lines += ["", f"## {one.name}" if len(one.words) > 1 else f"## The program {one.name}", ""]
        lines += [*_body(one)]
    lines += ["", "## Options of a connection", "", *_table(connection)]
    return "\n".join(lines) + "\n"


def man_name(command: Command) -> str:
    """The name of a command's man page, without its section."""
    return "-".join(command.words)


def man_page(command: Command) -> str:
    """Return the man page of a command, with a new line at its end."""
    name = man_name(command)
    lines = [
        f'.TH "{_roff(name.upper())}" 1 "" "amqp-event-streams {__version__}" "User Commands"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(command.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(command.name)}",
        _roff(command.usage) or "\\&",
        ".SH DESCRIPTION",
    ]
    for index, paragraph in enumerate(command.paragraphs):
        lines += [".PP"] if index else []
        lines += (
            [".EX", *map(_roff, paragraph.lines), ".EE"]
            if paragraph.verbatim
            else [_roff(" ".join(paragraph.lines))]
        )
    if command.inner:
        lines += [".SH COMMANDS", *(f".TP\n.B {_roff(one)}\nSee {_reference(one)}." for one in command.inner)]
    for title, options in (("OPTIONS", command.options), ("CONNECTION OPTIONS", command.connection)):
        if options:
            lines += [f".SH {title}", *(f".TP\n.B {_roff(flags)}\n{_roff(text)}" for flags, text in options)]
    if command.examples:
        lines += [".SH EXAMPLES", ".EX", *map(_roff, command.examples), ".EE"]
    lines += [".SH EXIT STATUS", *(f".TP\n.B {status}\n{text}" for status, text in _EXIT_STATUSES)]
    if len(command.words) > 1:
        lines += [".SH SEE ALSO", _reference(" ".join(command.words[:-1]))]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the man pages of both programs."""
    MAN.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        for command in commands(program):
            (MAN / f"{man_name(command)}.1").write_text(man_page(command), encoding="utf-8")


def _walked(context: click.Context, command: click.Command, words: tuple[str, ...]) -> Iterator[Command]:
    inner: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, "a listed command exists"
            inner.append((name, found))
    yield _command(context, command, words, tuple(" ".join((*words, name)) for name, _ in inner))
    for name, found in inner:
        yield from _walked(click.Context(found, info_name=name, parent=context), found, (*words, name))


def _command(
    context: click.Context, command: click.Command, words: tuple[str, ...], inner: tuple[str, ...]
) -> Command:
    paragraphs, examples = _parts(command.help or "")
    own: list[tuple[str, str]] = []
    connection: list[tuple[str, str]] = []
    of_gateway = words[0] == "knative-gateway" and "server" in {one.name for one in command.params}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        shared = isinstance(parameter, ConnectionOption) or (
            of_gateway and parameter.name in _GATEWAY_CONNECTION
        )
        (connection if shared else own).append(record)
    usage = " ".join(command.collect_usage_pieces(context))
    summary = command.get_short_help_str(limit=200)
    return Command(words, usage, summary, paragraphs, examples, tuple(own), tuple(connection), inner)


def _parts(text: str) -> tuple[tuple[Paragraph, ...], tuple[str, ...]]:
    """Return the paragraphs of a help text, and its examples."""
    paragraphs: list[Paragraph] = []
    examples: tuple[str, ...] = ()
    for block in inspect.cleandoc(text).split("\n\n"):
        lines = tuple(block.splitlines())
        if not lines:
            continue
        if lines[0] != _VERBATIM:
            paragraphs.append(Paragraph(tuple(line.strip() for line in lines)))
        elif lines[1].startswith("Example"):
            examples = tuple(line.removeprefix("  ") for line in lines[2:])
        else:
            # A line that is not indented introduces the rest.
            head = [line for line in lines[1:] if not line.startswith(" ")]
            rest = tuple(line[2:] for line in lines[1:] if line.startswith(" "))
            paragraphs += [Paragraph(tuple(head))] if head else []
            paragraphs.append(Paragraph(rest, verbatim=True))
    return tuple(paragraphs), examples


def _body(one: Command) -> Iterator[str]:
    yield f"`{one.name} {one.usage}`"
    for paragraph in one.paragraphs:
        yield ""
        if paragraph.verbatim:
            yield from ("```text", *paragraph.lines, "```")
        else:
            yield from textwrap.wrap(
                _markdown(" ".join(paragraph.lines)),
                WIDTH_MAX,
                break_long_words=False,
                break_on_hyphens=False,
            )
    if one.examples:
        yield from ("", "```text", *one.examples, "```")
    if one.options:
        yield from ("", *_table(one.options))
    if one.connection:
        yield from ("", "And the [options of a connection](#options-of-a-connection).")


def _table(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for flags, text in options:
        yield f"| `{flags.replace('|', chr(92) + '|')}` | {_markdown(text)} |"


def _markdown(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return escaped.replace("[[", "\\[\\[").replace("[", "\\[").replace("]", "\\]").replace("_", "\\_")


def _anchor(one: Command) -> str:
    return one.name.replace(" ", "-")


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _reference(name: str) -> str:
    return f"\\fB{_roff(name.replace(' ', '-'))}\\fR(1)"


if __name__ == "__main__":
    main()
