"""The calls of `$management` without `await`."""

from amqp_streams.client import aio
from amqp_streams.client.blocking.wrapper import Wrapper, waits


class Management(Wrapper[aio.Management]):
    """See `amqp_streams.client.management.calls.Management`."""

    create_log = waits(aio.Management.create_log)
    list_logs = waits(aio.Management.list_logs)
    describe_log = waits(aio.Management.describe_log)
    update_log = waits(aio.Management.update_log)
    delete_log = waits(aio.Management.delete_log)
    list_cursors = waits(aio.Management.list_cursors)
    describe_cursor = waits(aio.Management.describe_cursor)
    reset_cursor = waits(aio.Management.reset_cursor)
    delete_cursor = waits(aio.Management.delete_cursor)
    list_groups = waits(aio.Management.list_groups)
    query_groups = waits(aio.Management.query_groups)
    describe_group = waits(aio.Management.describe_group)
    reset_group = waits(aio.Management.reset_group)
    delete_group = waits(aio.Management.delete_group)
    list_connections = waits(aio.Management.list_connections)
    connection_page = waits(aio.Management.connection_page)
    describe_connection = waits(aio.Management.describe_connection)
    close_connection = waits(aio.Management.close_connection)
    describe_node = waits(aio.Management.describe_node)
