"""What the node tells about its logs: the answers of `$info`, and the figures of groups."""
