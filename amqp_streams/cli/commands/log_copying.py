"""`amqp-streams log copy`: the work behind the command, which needs the extras `node` and `kafka`."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from amqp_streams.cli.commands.offline import unknown
from amqp_streams.cli.settings import node_settings
from amqp_streams.cli.terminal.console import print_json, print_table, progress, say
from amqp_streams.errors import ConfigError, CorruptionError, StorageError
from amqp_streams.kafka.connecting import connection_settings
from amqp_streams.kafka.copying.copying import CopiedPartition, Copier
from amqp_streams.kafka.copying.source import Source
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, decoded

_FAILED: Final = 1
MAP_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments of the command. `settings`: those of the node that are given as flags."""

    directory: Path
    log: str
    settings: Mapping[tuple[str, ...], object]
    config: Path | None
    map_file: Path | None
    skip_damaged: bool
    dry_run: bool
    as_json: bool


def copy_log(wanted: Wanted) -> int:
    """Copy a log, and print what was done.

    Raises:
        ConfigError: a setting of Kafka is not valid.
        StorageError: the copy failed; the message says what to do.
    """
    settings = node_settings({("store",): "kafka", **wanted.settings}, os.environ, wanted.config)
    kafka = settings.kafka
    assert kafka is not None, "the store is Kafka"
    try:
        topic = TopicNames(kafka.prefix).of_log(wanted.log)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        source = Source(wanted.directory, wanted.log, skip_damaged=wanted.skip_damaged)
    except KeyError as error:
        raise unknown(wanted.directory, wanted.log, None) from error
    cursors = _cursors(source)
    began, steps = time.monotonic(), _Steps()
    copier = Copier(
        source,
        topic,
        connection_settings(kafka),
        replicas=kafka.replicas,
        message_bytes=settings.limits.message_bytes,
        advanced=steps.advanced,
    )
    if wanted.dry_run:
        return _show_plan(wanted, source, topic, cursors, exists=copier.look() is not None)
    # Compared or appended, then compared: each record counts twice if it is appended.
    with progress(f"copying {wanted.log}", None) as advance:
        steps.advance = lambda count: advance(count, note=f"{count:,} records compared and appended")
        try:
            copied = copier.copy()
        except CorruptionError as error:
            message = f"{error}. To copy the other records, use --skip-damaged"
            raise StorageError(message) from error
    file = wanted.map_file or Path(f"{wanted.log}.offsets.json")
    _write(file, offsets_map(source, topic, copied, cursors))
    for words in source.damaged:
        say(f"amqp-streams: skipped: {words}")
    if wanted.as_json:
        done = {"log": wanted.log, "topic": topic, "map": str(file), "seconds": time.monotonic() - began}
        print_json(done | {"cursors": len(cursors), "damaged": list(source.damaged)} | _as_json(copied))
    else:
        _print(copied)
        count = sum(each.runs.count for each in copied)
        say(
            f"{wanted.log} is in topic {topic}: {count:,} events compared; the offsets of events and of"
            f" {len(cursors)} cursors are in {file}"
        )
    return _FAILED if source.damaged else 0


def offsets_map(
    source: Source, topic: str, copied: Sequence[CopiedPartition], cursors: Sequence[Cursor]
) -> dict[str, object]:
    """Which offset each record has in Kafka, and each position of a cursor or group."""
    by_index = {each.index: each for each in copied}
    return {
        "version": MAP_VERSION,
        "log": source.record.name,
        "incarnation": source.record.incarnation,
        "topic": topic,
        "partitions": [
            {
                "partition": each.index,
                "records": each.runs.count,
                # From, to, and how many.
                "runs": [list(run) for run in each.runs],
            }
            for each in copied
        ],
        "cursors": [
            {
                "id": cursor.id,
                "group": cursor.key.group,
                "container": cursor.key.container,
                "link": cursor.key.link,
                "user": cursor.user,
                "positions": [
                    {"partition": index, "log": old, "kafka": new_position(by_index[index], old)}
                    for index, old in sorted(cursor.positions.items())
                    if index in by_index
                ],
            }
            for cursor in cursors
        ],
    }


def new_position(copied: CopiedPartition, old: int) -> int:
    """The offset at which a cursor of a partition continues in Kafka."""
    return copied.runs.new_of(old, copied.extent.end)


def _cursors(source: Source) -> list[Cursor]:
    """The cursors of the log."""
    begin = f"{PREFIX}{source.record.incarnation}/"
    return [decoded(key, value) for key, value in source.states().items() if key.startswith(begin)]


def _write(file: Path, content: Mapping[str, object]) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(file)


def _show_plan(wanted: Wanted, source: Source, topic: str, cursors: Sequence[Cursor], *, exists: bool) -> int:
    partitions = source.record.settings.partitions
    if wanted.as_json:
        print_json(
            {
                "log": wanted.log,
                "topic": topic,
                "topic_exists": exists,
                "partitions": partitions,
                "cursors": len(cursors),
            }
        )
        return 0
    what = "is compared, and gets what is missing" if exists else f"is created with {partitions} partitions"
    click.echo(f"topic {topic} {what}; {len(cursors)} cursors; nothing was changed")
    return 0


def _as_json(copied: Sequence[CopiedPartition]) -> dict[str, object]:
    return {
        "events": sum(each.runs.count for each in copied),
        "appended": sum(each.appended for each in copied),
        "partitions": [
            {
                "partition": each.index,
                "start": each.start,
                "end": each.end,
                "events": each.runs.count,
                "appended": each.appended,
                "kafka_start": each.extent.start,
                "kafka_end": each.extent.end,
            }
            for each in copied
        ],
    }


def _print(copied: Sequence[CopiedPartition]) -> None:
    columns = ("PARTITION", "EVENTS", "COPIED NOW", "START", "END", "START IN KAFKA", "END IN KAFKA")
    print_table(
        columns,
        [
            (
                each.index,
                each.runs.count,
                each.appended,
                each.start,
                each.end,
                each.extent.start,
                each.extent.end,
            )
            for each in copied
        ],
    )


class _Steps:
    """Counts what a copy has done, for the progress bar."""

    def __init__(self) -> None:
        self.count = 0
        self.advance: Callable[[int], None] = _ignore

    def advanced(self, count: int) -> None:
        self.count += count
        self.advance(self.count)


def _ignore(_count: int) -> None:
    """Used before the bar is there."""
