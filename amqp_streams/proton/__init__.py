"""Qpid Proton's engine below its public binding: the only package that calls its C functions."""
