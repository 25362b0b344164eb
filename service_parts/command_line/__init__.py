"""The frame of a program: its commands, how they end, and what `serve` has in every program."""
