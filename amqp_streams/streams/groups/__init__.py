"""Consumer groups: assigning partitions to links. Spec: Event Streams 4.5."""
