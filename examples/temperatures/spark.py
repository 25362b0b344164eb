"""The part of `make demo` that runs a Spark job: statistics of the temperatures in the log, into a second log
and into Parquet files.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from examples.temperatures import statistics
from examples.temperatures.telling import check, say, title

Key = TypeVar("Key")

ROUNDING: Final = 0.0051
MUCH_LATER: Final = "2011/03/01 00:00,40.0"
"""A reading that comes when the year is over: then no more of it is waited for."""


def statistics_of(node: NodeProcess, rows: Sequence[str], folder: Path) -> None:
    """Show it; ends the program if a number is wrong.

    `rows`: date and temperature; some are in the log twice.
    """
    title("A Spark job reads the log and computes daily and hourly statistics")
    folder.mkdir(parents=True)
    with words_to(folder / "spark.log"):
        spark = statistics.session()
    try:
        say(f"python -m examples.temperatures.statistics --endpoint {node.url} --folder {folder.name}")
        say(f"Spark {spark.version} in this process; what it says goes to {folder / 'spark.log'}")
        statistics.run(spark, node.url, folder)
        days = daily(node)
        say(
            f"{len(days)} days are in the log {statistics.STATISTICS!r}; for the others more may come yet:"
            " late readings are waited for"
        )
        send(node, MUCH_LATER)
        say(f"a reading of {MUCH_LATER[:10]} comes in, and the job is run again: it goes on where it ended")
        statistics.run(spark, node.url, folder)
        days = daily(node)
        wanted = by_day(rows)
        check(len(days) == len(wanted), f"{len(days)} days in the log {statistics.STATISTICS!r}, each once")
        check(
            close(days, wanted),
            "mean, lowest and highest of each day are those of the file, however often a reading is in"
            " the log",
        )
        hottest = max(days, key=lambda day: days[day][2])
        say(f"the hottest day: {hottest}, {days[hottest][2]} °F; the mean of that day {days[hottest][0]} °F")
        hours = {
            row.until: (row.mean, row.readings)
            for row in spark.read.parquet(str(folder / "hourly")).collect()
        }
        check(
            close(hours, by_hour(rows)),
            f"{len(hours):,} hours in Parquet files: the mean of the 24 hours up to each is right",
        )
    finally:
        spark.stop()


@contextmanager
def words_to(file: Path) -> Iterator[None]:
    """What processes write to stderr that are started in here."""
    kept = os.dup(2)
    try:
        with file.open("wb") as words:
            os.dup2(words.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def send(node: NodeProcess, row: str) -> None:
    """One more."""
    with connect(node.url) as client, client.producer("temps") as producer:
        producer.send(Event(row, key=row[:10]))


def daily(node: NodeProcess) -> dict[str, tuple[float, float, float, int]]:
    """What a client reads from the second log: mean, lowest, highest and number of readings by day.

    Ends if one is there twice.
    """
    days: dict[str, tuple[float, float, float, int]] = {}
    with connect(node.url) as client, client.consumer(statistics.STATISTICS, start=EARLIEST) as consumer:
        while events := consumer.receive_retained():
            for event in events:
                assert isinstance(event.body, str)
                one = json.loads(event.body)
                check_once(one["day"] not in days, one["day"])
                days[one["day"]] = (one["mean"], one["lowest"], one["highest"], one["readings"])
    return days


def check_once(is_new: bool, day: str) -> None:
    """Say nothing, unless it is there twice."""
    if not is_new:
        check(False, f"{day} is in the log once")


def by_day(rows: Sequence[str]) -> dict[str, tuple[float, float, float, int]]:
    """The same without Spark."""
    days: dict[str, list[float]] = {}
    for time, value in map(reading, rows):
        days.setdefault(f"{time:%Y-%m-%d}", []).append(value)
    return {day: (fmean(values), min(values), max(values), len(values)) for day, values in days.items()}


def by_hour(rows: Sequence[str]) -> dict[datetime, tuple[float, int]]:
    """The same without Spark: the mean of the 24 hours up to each hour, and how many readings that is."""
    values = dict(map(reading, rows))
    hour = timedelta(hours=1)
    ends = {time + after * hour for time in values for after in range(1, 25)}
    windows = {
        end: [values[time] for time in (end - before * hour for before in range(1, 25)) if time in values]
        for end in ends
    }
    return {end: (fmean(inside), len(inside)) for end, inside in windows.items()}


def close(one: Mapping[Key, tuple[float, ...]], other: Mapping[Key, tuple[float, ...]]) -> bool:
    """The same keys, and the same numbers but for the rounding of two decimals."""
    return one.keys() == other.keys() and all(
        abs(ours - theirs) < ROUNDING
        for key in one
        for ours, theirs in zip(one[key], other[key], strict=True)
    )


def reading(row: str) -> tuple[datetime, float]:
    """2010-01-01 00:00 and 39.4 of `2010/01/01 00:00,39.4`."""
    time, value = row.split(",")
    return datetime.strptime(time, "%Y/%m/%d %H:%M"), float(value)
