"""Whole nodes with their clients, disks, networks and clocks, each run from one seed.

`make sim SEEDS=1000`, `make sim SEED=7`. docs/reliability.md says what is simulated and what is checked.
"""
