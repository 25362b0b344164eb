"""Events as AMQP messages: how they are stored in a log. Spec: CloudEvents AMQP binding 1.0.2. Pure.

message annotations (group key) | properties (content-type) | application properties (attributes) | data

Laws: `decode(encode(event)) == event`, data byte for byte; messages of other writers are read in both
spellings of the prefix, in binary and in structured mode.
"""

from event_formats.amqp_binding.reading import decode, identity, passed_on
from event_formats.amqp_binding.writing import encode

__all__ = ["decode", "encode", "identity", "passed_on"]
