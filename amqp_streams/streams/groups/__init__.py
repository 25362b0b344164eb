"""Consumer groups: who owns which partition. Spec: Event Streams 4.5."""
