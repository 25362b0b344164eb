"""Knative Eventing's Broker, Trigger, Channel and Subscription over the event log."""

from amqp_streams import __version__

__all__ = ["__version__"]
