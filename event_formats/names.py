"""Names of the CloudEvents standard and its bindings, each written once."""

from typing import Final

REQUIRED: Final = ("specversion", "id", "source", "type")
ID: Final = "id"
CONTENT_TYPE: Final = "datacontenttype"
"""The attribute that is the content type of a message or request in binary mode."""
CONTENT_ENCODING: Final = "datacontentencoding"
"""Version 0.3 only: the encoding of data that is text."""
KEY: Final = "partitionkey"
"""The attribute of the partitioning extension. Events with the same value stay in order, in one partition."""
DATA: Final = "data"
"""The member of JSON with the data. An attribute must not have this name."""
DATA_BASE64: Final = "data_base64"

AMQP_PREFIX: Final = "cloudEvents_"
"""The prefix of an attribute's name in application properties, as this package writes it."""
AMQP_PREFIXES: Final = (AMQP_PREFIX, "cloudEvents:")
"""Both prefixes that the binding allows. Readers rely on their equal length."""
AMQP_HEADER_PREFIX: Final = "httpHeader_"
"""The prefix of application properties that are headers of the event's request. It is not in the standard."""
HTTP_PREFIX: Final = "ce-"
"""The prefix of an attribute's name in HTTP headers."""
