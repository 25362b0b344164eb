"""Names of the CloudEvents standard and its bindings, each written once."""

from typing import Final

REQUIRED: Final = ("specversion", "id", "source", "type")
CONTENT_TYPE: Final = "datacontenttype"
"""The attribute that is the content type of a message or request in binary mode."""
CONTENT_ENCODING: Final = "datacontentencoding"
"""Version 0.3 only: how data that is text is encoded."""
KEY: Final = "partitionkey"
"""The attribute of the partitioning extension. Events with the same value stay in order, in one partition."""
DATA: Final = "data"
"""In JSON the member with the data, so that no attribute can have this name."""
DATA_BASE64: Final = "data_base64"

AMQP_PREFIX: Final = "cloudEvents_"
"""Before the name of an attribute among application properties, as we write it."""
AMQP_PREFIXES: Final = (AMQP_PREFIX, "cloudEvents:")
"""Both spellings that the binding allows. They have the same length."""
AMQP_HEADER_PREFIX: Final = "httpHeader_"
"""Application properties that are not attributes but headers of the request that brought the event (not in
the standard).
"""
HTTP_PREFIX: Final = "ce-"
"""Before the name of an attribute in an HTTP header field."""
