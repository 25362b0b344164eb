"""[io] One partition: its segments, its pending records, and reading."""
