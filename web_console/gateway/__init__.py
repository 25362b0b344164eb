"""The console of a gateway: Brokers, Channels, and what receives their events."""
