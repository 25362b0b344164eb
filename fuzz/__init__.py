"""Inputs that nobody would send, against everything that takes input: `make fuzz`. See README.md."""
