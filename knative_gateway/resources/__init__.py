"""Kubernetes objects as data: kinds, validation, defaults, conditions, patches, selectors, printing. Pure.

Every write of a client enters through `admission`.
"""
