"""`make release` and `make dist`: versions, distributions that anyone can rebuild byte for byte, and their
checks.
"""
