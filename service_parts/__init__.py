"""The parts that the node and the gateway share: command line, settings, logging, tokens.

Imports neither of them.
"""
