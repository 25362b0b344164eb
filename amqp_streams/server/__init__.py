"""The I/O shell of the event log node: listeners, connections, the bridge to Proton's engine."""
