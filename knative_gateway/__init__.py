"""Knative Eventing's Broker, Trigger, Channel and Subscription over the event log."""
