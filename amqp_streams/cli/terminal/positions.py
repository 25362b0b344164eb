"""What the commands `cursor` and `group` share."""

from collections.abc import Sequence
from typing import Final

import click

from amqp_streams.cli.terminal.console import confirmed, print_table, say
from amqp_streams.cli.terminal.parameters import now_ms, usage_error
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.cli.terminal.starts import parse_start
from amqp_streams.client import AfterOffset, CursorInfo, CursorPosition, GroupInfo, Start
from amqp_streams.client.management.cursors import lag_of
from service_parts.texts import printable

POSITION_COLUMNS: Final = ("PARTITION", "OFFSET", "LAG", "EPOCH", "OWNER")
_SHOWN_MAX: Final = 8
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
TO = click.option(
    "--to", "to", metavar="START", required=True, help="The next event: earliest, latest, an offset, a time."
)
PARTITION = click.option(
    "--partition", help="Only this partition; required for an offset if the log has several.  [default: all]"
)


def target(to: str) -> Start:
    """The target of a move, written as for `receive --from`.

    Raises:
        click.UsageError: the text is not a valid target.
    """
    try:
        return parse_start(to, now_ms())
    except ValueError as error:
        raise usage_error("--to", error) from error


def check_partition(start: Start, partition: str | None, positions: Sequence[CursorPosition]) -> None:
    """Refuse an offset without a partition.

    Raises:
        click.UsageError: the log has several partitions, and none is named.
    """
    if isinstance(start, AfterOffset) and partition is None and len(positions) > 1:
        message = (
            "an offset belongs to one partition: name the partition with --partition, one of"
            f" {', '.join(one.partition for one in positions)}"
        )
        raise usage_error("--to", message)


def move_confirmed(what: str, to: str, partition: str | None, positions: Sequence[CursorPosition]) -> bool:
    """Show the current position on stderr, and ask for confirmation."""
    moved = [one for one in positions if partition is None or one.partition == partition]
    shown = ", ".join(
        f"{one.partition}:{'-' if one.next_number is None else one.next_number}" for one in moved[:_SHOWN_MAX]
    )
    more = f" and {len(moved) - _SHOWN_MAX} more" if len(moved) > _SHOWN_MAX else ""
    say(f"{what} reads next: {shown or 'nothing yet'}{more} (partition:offset)")
    return confirmed(f"Move it to {to}{'' if partition is None else f' in partition {partition}'}?")


def lag(positions: Sequence[CursorPosition]) -> int | None:
    """The lag over all partitions; None if the node reports none."""
    return lag_of(tuple(positions))


def print_positions(positions: Sequence[CursorPosition]) -> None:
    """Print a table of positions."""
    print_table(
        POSITION_COLUMNS,
        [(one.partition, one.offset, one.lag, one.epoch, one.member) for one in positions],
    )


def positions_json(positions: Sequence[CursorPosition]) -> list[dict[str, object]]:
    """The positions as JSON values."""
    return [
        {
            "partition": one.partition,
            "offset": one.offset,
            "next": one.next_number,
            "lag": one.lag,
            "epoch": one.epoch,
            "owner": one.member,
        }
        for one in positions
    ]


def cursor_json(one: CursorInfo) -> dict[str, object]:
    """A cursor as JSON values."""
    return {
        "log": one.log,
        "id": one.id,
        "group": one.group,
        "container": one.container,
        "name": one.link,
        "user": one.user,
        "active": one.active,
        "members_known": one.members_known,
        "members_reason": one.members_reason,
        "updated": iso_time(one.updated_ms),
        "lag": lag(one.positions),
        "partitions": positions_json(one.positions),
    }


def say_unknown(groups: Sequence[GroupInfo], incomplete: Sequence[str] = ()) -> None:
    """Say on stderr of which groups the members are not known, and why; and whether groups may be missing."""
    reasons: dict[str, list[str]] = {}
    for one in groups:
        if not one.members_known:
            reasons.setdefault(one.members_reason or "the node does not say why", []).append(one.name)
    for reason, of_reason in reasons.items():
        more = f" and {len(of_reason) - _SHOWN_MAX} more" if len(of_reason) > _SHOWN_MAX else ""
        names = ", ".join(map(printable, of_reason[:_SHOWN_MAX]))
        say(f"the members of {names}{more} are not known: {printable(reason)}")
    for reason in incomplete:
        say(f"groups without a position and an epoch may be missing: {printable(reason)}")


def group_json(one: GroupInfo) -> dict[str, object]:
    """A group as JSON values."""
    return {
        "log": one.log,
        "group": one.name,
        "members": list(one.members),
        "waiting": one.waiting,
        "active": one.active,
        "members_known": one.members_known,
        "members_reason": one.members_reason,
        "updated": iso_time(one.updated_ms),
        "lag": lag(one.positions),
        "partitions": positions_json(one.positions),
    }
