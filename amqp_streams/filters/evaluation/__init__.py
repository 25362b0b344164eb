"""Compiles a filter's syntax tree to functions that evaluate a record. Spec: FILTEX 6.4."""
