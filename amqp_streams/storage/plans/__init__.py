"""Decisions of the store without their execution: recovery and retention. Pure."""
