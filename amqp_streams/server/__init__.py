"""The I/O shell of the event log node: listeners, connections, and the bridge to Proton."""

from amqp_streams.server.run import run, serve

__all__ = ["run", "serve"]
