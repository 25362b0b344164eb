"""Faults that were fixed, as small patches that put them back, and the suites that must find each."""
