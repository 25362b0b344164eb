"""Make a log, send events, read them back from the earliest: the asyncio client.

python examples/client_send_and_receive.py amqp://127.0.0.1:5672
"""

import argparse
import asyncio

from amqp_streams.client import EARLIEST, Event, ManagementError, connect


async def main(url: str) -> None:
    async with connect(url) as client:
        try:
            await client.management.create_log("example.rooms", partitions=2)
        except ManagementError as error:
            if error.status != 409:  # it exists already
                raise

        async with client.producer("example.rooms") as producer:
            for room in ("kitchen", "hall", "cellar"):
                # Waits until the event is durable. Events of one key stay in order: they go to one partition.
                await producer.send(Event(f"20.5 in the {room}", key=room, properties={"unit": "C"}))
            await producer.post_batch([Event(f"{number}", key="counter") for number in range(1000)])
            # Leaving the block flushes: waits for all outcomes and raises SendError if any was refused.

        events = sum(
            partition.event_count or 0 for partition in (await client.info("example.rooms")).partitions
        )
        async with client.consumer("example.rooms", start=EARLIEST) as consumer:
            received = 0
            async for event in consumer:
                received += 1
                if received <= 3:
                    print(
                        f"partition {event.partition} offset {event.offset}: {event.body!r} (key {event.key})"
                    )
                if received == events:
                    break
        print(f"{received} events")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    options = parser.parse_args()
    asyncio.run(main(options.url))
