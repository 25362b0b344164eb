"""Who a peer is: SASL, passwords, certificates and tokens."""
