"""Kubernetes objects as data: kinds, validation, defaults, conditions, patches, selectors, printing.

Pure; `admission` is the way in.
"""
