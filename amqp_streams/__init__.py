"""An event stream engine.

A durable, partitioned event log served over AMQP 1.0 (OASIS Event Stream Extensions).
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
