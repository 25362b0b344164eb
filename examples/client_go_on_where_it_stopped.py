"""Read a partition in batches and keep the position in a file, so that the next run goes on behind it.

python examples/client_go_on_where_it_stopped.py amqp://127.0.0.1:5672 temps position.json
"""

import argparse
import json
from pathlib import Path

from amqp_streams.client import EARLIEST, AfterOffset
from amqp_streams.client.blocking import connect


def main(url: str, log: str, file: Path) -> None:
    start = AfterOffset(json.loads(file.read_text())) if file.exists() else EARLIEST
    with connect(url) as client, client.consumer(log, partition=0, start=start) as consumer:
        count = 0
        while batch := consumer.receive(max_events=500, timeout=1.0):
            count += len(batch)
            # Work first, then remember: after a crash in between, this batch comes once more.
            file.write_text(json.dumps(batch[-1].offset))
        print(f"{count} new events")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("log")
    parser.add_argument("file")
    options = parser.parse_args()
    main(options.url, options.log, Path(options.file))
