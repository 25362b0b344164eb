"""Events as AMQP messages: how they are stored in a log. Spec: CloudEvents AMQP binding 1.0.2. Pure.

message annotations (group key) | properties (content-type) | application properties (attributes) | data

Laws: `decode(encode(event)) == event`, with the data byte for byte. Messages of other programs are read with
both spellings of the prefix, and in binary and structured mode.
"""

from event_formats.amqp_binding.reading import decode, identity, passed_on
from event_formats.amqp_binding.writing import encode

__all__ = ["decode", "encode", "identity", "passed_on"]
