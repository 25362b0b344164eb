"""The client of an event log node: producers, consumers, log information and management.

`connect` in this package is for asyncio. `amqp_streams.client.blocking.connect` has the same parameters and
methods without `await`.
"""

import logging

from amqp_streams.client.aio import (
    Client,
    Consumer,
    GroupConsumer,
    Management,
    Pending,
    Producer,
    RangeReader,
    Receipt,
    Run,
    connect,
)
from amqp_streams.client.errors import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    EndpointError,
    LinkError,
    LinkRefusedError,
    ManagementError,
    OwnershipLostError,
    RedirectError,
    RejectedError,
    ReleasedError,
    SendError,
    SequenceError,
    SessionError,
    TimedOutError,
)
from amqp_streams.client.events import Event
from amqp_streams.client.management.connections import (
    AttachedLink,
    ConnectionInfo,
    ConnectionPage,
    Held,
    Traffic,
)
from amqp_streams.client.management.cursors import CursorInfo, CursorPosition, GroupInfo, GroupList
from amqp_streams.client.management.extents import LogExtent, PartitionExtent
from amqp_streams.client.management.info import LogInfo, LogSummary, PartitionInfo
from amqp_streams.client.management.node import (
    NodeChange,
    NodeInfo,
    NodeSetting,
    NodeWarning,
    Used,
)
from amqp_streams.client.options import (
    ACCEPTED,
    EARLIEST,
    LATEST,
    MODIFIED,
    NO_RETRY,
    REJECTED,
    RELEASED,
    AfterOffset,
    AfterTime,
    Earliest,
    Latest,
    Outcome,
    RetryPolicy,
    SaslOptions,
    Settle,
    Start,
    StartAt,
    TlsOptions,
    sql_filter,
)
from amqp_streams.client.received import ReceivedEvent

# A library must not write to stderr on its own. A program that wants the client's warnings configures
# logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "ACCEPTED",
    "EARLIEST",
    "LATEST",
    "MODIFIED",
    "NO_RETRY",
    "REJECTED",
    "RELEASED",
    "AfterOffset",
    "AfterTime",
    "AttachedLink",
    "AuthenticationError",
    "Client",
    "ClosedError",
    "ConnectError",
    "ConnectionInfo",
    "ConnectionLostError",
    "ConnectionPage",
    "Consumer",
    "CursorInfo",
    "CursorPosition",
    "Earliest",
    "EndpointError",
    "Event",
    "GroupConsumer",
    "GroupInfo",
    "GroupList",
    "Held",
    "Latest",
    "LinkError",
    "LinkRefusedError",
    "LogExtent",
    "LogInfo",
    "LogSummary",
    "Management",
    "ManagementError",
    "NodeChange",
    "NodeInfo",
    "NodeSetting",
    "NodeWarning",
    "Outcome",
    "OwnershipLostError",
    "PartitionExtent",
    "PartitionInfo",
    "Pending",
    "Producer",
    "RangeReader",
    "Receipt",
    "ReceivedEvent",
    "RedirectError",
    "RejectedError",
    "ReleasedError",
    "RetryPolicy",
    "Run",
    "SaslOptions",
    "SendError",
    "SequenceError",
    "SessionError",
    "Settle",
    "Start",
    "StartAt",
    "TimedOutError",
    "TlsOptions",
    "Traffic",
    "Used",
    "connect",
    "sql_filter",
]
