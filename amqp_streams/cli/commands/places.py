"""What the commands `cursor` and `group` share."""

from collections.abc import Sequence
from typing import Final

import click

from amqp_streams.cli.terminal.console import confirmed, print_table, say
from amqp_streams.cli.terminal.parameters import misuse, now_ms
from amqp_streams.cli.terminal.positions import parse_start
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.client import AfterOffset, CursorInfo, GroupInfo, Place, Start
from amqp_streams.client.management.places import lag_of

PLACE_COLUMNS: Final = ("PARTITION", "OFFSET", "LAG", "EPOCH", "OWNER")
_SHOWN_MAX: Final = 8
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
TO = click.option(
    "--to", "to", metavar="PLACE", required=True, help="The next event: earliest, latest, an offset, a time."
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
        raise misuse("--to", error) from error


def check_partition(start: Start, partition: str | None, places: Sequence[Place]) -> None:
    """Refuse an offset without a partition.

    Raises:
        click.UsageError: the log has several partitions, and none is named.
    """
    if isinstance(start, AfterOffset) and partition is None and len(places) > 1:
        message = (
            "an offset belongs to one partition: name the partition with --partition, one of"
            f" {', '.join(one.partition for one in places)}"
        )
        raise misuse("--to", message)


def move_confirmed(what: str, to: str, partition: str | None, places: Sequence[Place]) -> bool:
    """Show the current position on stderr, and ask for confirmation."""
    moved = [one for one in places if partition is None or one.partition == partition]
    shown = ", ".join(
        f"{one.partition}:{'-' if one.next_number is None else one.next_number}" for one in moved[:_SHOWN_MAX]
    )
    more = f" and {len(moved) - _SHOWN_MAX} more" if len(moved) > _SHOWN_MAX else ""
    say(f"{what} reads next: {shown or 'nothing yet'}{more} (partition:offset)")
    return confirmed(f"Move it to {to}{'' if partition is None else f' in partition {partition}'}?")


def lag(places: Sequence[Place]) -> int | None:
    """The lag over all partitions; None if the node reports none."""
    return lag_of(tuple(places))


def print_places(places: Sequence[Place]) -> None:
    """Print a table of positions."""
    print_table(
        PLACE_COLUMNS,
        [(one.partition, one.offset, one.lag, one.epoch, one.member) for one in places],
    )


def places_json(places: Sequence[Place]) -> list[dict[str, object]]:
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
        for one in places
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
        "updated": iso_time(one.updated_ms),
        "lag": lag(one.places),
        "partitions": places_json(one.places),
    }


def group_json(one: GroupInfo) -> dict[str, object]:
    """A group as JSON values."""
    return {
        "log": one.log,
        "group": one.name,
        "members": list(one.members),
        "waiting": one.waiting,
        "active": one.active,
        "updated": iso_time(one.updated_ms),
        "lag": lag(one.places),
        "partitions": places_json(one.places),
    }
