"""`make attack`: one tenant uses everything that it may, and breaks what it can; another tenant works beside
it.

The tables of attacks are compared with the product's own tables (`inventory.py`): an operation, limit, timer,
endpoint, listener or remote without an attack fails a test.
"""
