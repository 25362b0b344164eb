"""[io] One partition: its segments, what is pending, and what readers get."""
