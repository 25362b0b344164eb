"""Seeded runs of whole gateways in virtual time: real parts, with a simulated network, log node, disk and
subscribers.
"""
