"""Authentication: SASL, passwords, certificates and tokens."""
