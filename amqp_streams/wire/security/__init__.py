"""SASL: its frames and its mechanisms, without I/O. Spec: AMQP 1.0 part 5.3."""
