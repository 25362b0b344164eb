"""Whole nodes with their clients, disks, networks and clocks. One seed determines a run: `make sim
SEEDS=1000`, `make sim SEED=7`.

docs/reliability.md describes what is simulated and what is checked.
"""
