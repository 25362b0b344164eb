"""`make scale`: many of everything at default settings.

It shows memory, CPU at rest, the time until everything is Ready, and whether probes still answer.
"""
