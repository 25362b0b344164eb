"""The blocking client: the same names and meanings as `amqp_streams.client`, without `await`."""

from amqp_streams.client.blocking.background import Pending
from amqp_streams.client.blocking.client import Client, Consumer, Producer, connect
from amqp_streams.client.blocking.group import GroupConsumer
from amqp_streams.client.blocking.management import Management
from amqp_streams.client.blocking.ranges import RangeReader

__all__ = [
    "Client",
    "Consumer",
    "GroupConsumer",
    "Management",
    "Pending",
    "Producer",
    "RangeReader",
    "connect",
]
