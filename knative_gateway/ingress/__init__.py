"""Events in over HTTP: from a request to a durable record of a Broker's or Channel's log."""
