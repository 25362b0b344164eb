"""Measurements of the engine from the outside: speed beside peers, many connections, a long run, a
profile.
"""
