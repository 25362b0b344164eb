"""The same client without asyncio.

python examples/client_blocking.py amqp://127.0.0.1:5672 temps
"""

import argparse

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect


def main(url: str, log: str) -> None:
    with connect(url) as client:
        with client.producer(log) as producer:
            pending = [producer.post(Event(f"reading {number}", key="blocking")) for number in range(10)]
            for one in pending:
                one.result()  # durable, or an exception that says why not
        with client.consumer(log, start=EARLIEST) as consumer:
            while batch := consumer.receive(max_events=500, timeout=1.0):
                print(f"{len(batch)} events up to {batch[-1].partition}:{batch[-1].offset}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("log")
    options = parser.parse_args()
    main(options.url, options.log)
