"""The event log node: frozen inputs in, effects out. Pure."""
