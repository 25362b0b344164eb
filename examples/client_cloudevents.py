"""Send CloudEvents of the CloudEvents SDK into a log, and read them back.

pip install 'amqp-event-streams[cloudevents]'
python examples/client_cloudevents.py amqp://127.0.0.1:5672

With the log of a Broker or Channel, the gateway delivers these events to its subscribers.
"""

import argparse
import asyncio

from cloudevents.core.v1.event import CloudEvent

from amqp_streams.client import EARLIEST, ManagementError, connect
from amqp_streams.client.cloudevents import from_event, to_event


async def main(url: str, log: str) -> None:
    async with connect(url) as client:
        try:
            await client.management.create_log(log, partitions=2)
        except ManagementError as error:
            if error.status != 409:  # it exists already
                raise

        async with client.producer(log) as producer:
            for room, degrees in (("kitchen", 20.5), ("hall", 18.0), ("cellar", 12.25)):
                # Events with the same partitionkey stay in order: they go to one partition.
                attributes = {
                    "type": "temperature.measured",
                    "source": "/sensors",
                    "subject": room,
                    "partitionkey": room,
                }
                await producer.send(to_event(CloudEvent(attributes, {"celsius": degrees})))

        async with client.consumer(log, start=EARLIEST) as consumer:
            for received in await consumer.receive_retained():
                event = from_event(received)
                print(f"{event.get_type()} in the {event.get_subject()}: {event.get_data()!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--log", default="example.cloudevents")
    options = parser.parse_args()
    asyncio.run(main(options.url, options.log))
