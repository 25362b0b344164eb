"""Comparisons with other products: what is measured, the goals, and the table of `make bench`."""
