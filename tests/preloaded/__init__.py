"""Processes of this project that start in a tenth of the time, by a fork."""
