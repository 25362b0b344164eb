"""The path of an event: which stored events a Broker or Channel has, who gets one of them, and how far that
is.
"""
