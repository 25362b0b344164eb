"""`amqp-streams user …`: the users of a node and their passwords. A running node reloads the file on SIGHUP.

A user can log in with PLAIN only if the name or password has characters that SCRAM does not allow, or if the
entry is older than SCRAM support.
"""

from difflib import get_close_matches
from pathlib import Path

import click

from amqp_streams.cli.terminal.console import print_json, print_table, report, say
from amqp_streams.cli.terminal.reading import password_from_stdin
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.server.identity.users import SCRAM_ITERATIONS, UsersFile
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from amqp_streams.wire.security.scram import ITERATIONS_MAX, ITERATIONS_MIN

_USERS = click.option(
    "--users",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="AMQP_STREAMS_USERS",
    show_envvar=True,
    help="The users file; the first 'add' creates it.",
)

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="Manage the users file of a node.")
def user() -> None:
    """Manage the users file of a node ('serve --users FILE').
    It has hashes and keys, never passwords. A node reloads it on SIGHUP.

    \b
    Examples:
      amqp-streams user add alice --users users.json
      pass show streams/bob | amqp-streams user add bob --users users.json --password-stdin
      amqp-streams user list --users users.json
      amqp-streams user remove alice --users users.json
    """


@user.command()
@click.argument("name")
@_USERS
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from the first line of stdin instead of asking twice.",
)
@click.option(
    "--scram-iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    metavar="N",
    default=SCRAM_ITERATIONS,
    show_default=True,
    help="Rounds of hashing: for each guess of an attacker who has the file, and for each login of the user.",
)
@_JSON
def add(name: str, *, file: Path, password_stdin: bool, scram_iterations: int, as_json: bool) -> None:
    """Add the user NAME, or give it a new password.

    \b
    Examples:
      amqp-streams user add alice --users users.json
      echo "$SECRET" | amqp-streams user add alice --users users.json --password-stdin
    """
    password = (
        password_from_stdin()
        # Passwords are never arguments: every user of the machine can see those.
        if password_stdin
        else click.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)
    )
    try:
        users = UsersFile.load(file, scram_iterations=scram_iterations)
        new = users.add(name, password)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    words = f"{name} was added" if new else f"{name} has a new password"
    report(words, as_json=as_json, user=name, new=new)
    if not _knows_scram(users, name):
        say(
            "the name or password has characters that SCRAM does not allow: this user can log in with PLAIN"
            " only"
        )


@user.command()
@click.argument("name")
@_USERS
@_JSON
def remove(name: str, *, file: Path, as_json: bool) -> int:
    """Remove the user NAME. A running node closes the user's connections at the next reload (SIGHUP).

    \b
    Examples:
      amqp-streams user remove alice --users users.json
    """
    users = UsersFile.load(file)
    if users.remove(name):
        report(f"{name} was removed", as_json=as_json, removed=name)
        return 0
    near = get_close_matches(name, users.names, n=1)
    suggestion = f"did you mean {near[0]!r}?" if near else f"see 'amqp-streams user list --users {file}'"
    message = f"no user named {name!r}; {suggestion}"
    raise AmqpStreamsError(message)


@user.command("list")
@_USERS
@_JSON
def list_(*, file: Path, as_json: bool) -> None:
    """List the users and the mechanisms that each can log in with.

    \b
    Examples:
      amqp-streams user list --users users.json
      amqp-streams user list --users users.json --json | jq -r '.users[]'
    """
    users = UsersFile.load(file)
    plain_only = [name for name in users.names if not _knows_scram(users, name)]
    if as_json:
        print_json({"users": users.names, "plain_only": plain_only})
    else:
        print_table(
            ("USER", "LOGIN"),
            [(name, "PLAIN" if name in plain_only else "SCRAM, PLAIN") for name in users.names],
        )


def _knows_scram(users: UsersFile, name: str) -> bool:
    return all(users.has_keys(name, algorithm) for algorithm in ScramAlgorithm)
