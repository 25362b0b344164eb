"""Seeded runs of whole gateways in virtual time: real parts, simulated network, log node, disk and
subscribers.
"""
