"""Converts between bytes and values: AMQP 1.0 encodings, message sections, SASL frames.

Pure: no sockets, no clock, no Proton.
"""
