"""A node without sockets, its peers, its disk and its clock, from one seed: `make sim SEEDS=200`, `make sim
SEED=7`.
"""
