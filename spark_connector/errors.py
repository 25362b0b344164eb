"""What the connector raises. Every error says what is wrong, where, and what can be done about it. Pure.

`ConnectorError` is the root. Its three parts are arguments, so that errors cross processes by pickle as Spark's workers need it.
"""


class ConnectorError(Exception):
    """`what` happened, `where` (log, partition, offset, option; may be empty) and the `remedy` (may be empty)."""

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where, remedy)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.what}{place}. {self.remedy}" if self.remedy else f"{self.what}{place}"


class OptionError(ConnectorError):
    """An option is unknown, missing, out of bounds, or in another's way. No network was asked."""


class SchemaError(ConnectorError):
    """A column is unknown, or has another type than the source or the sink has for it."""


class RowError(ConnectorError):
    """A row cannot be written for what is in it."""


class OffsetError(ConnectorError):
    """Offsets cannot be read: JSON of another kind, partitions that the log has not, a time after which there is no event."""


class StreamNotFoundError(ConnectorError):
    """The node has no log of this name, or does not show it to this user."""


class DataLossError(ConnectorError):
    """Events that were to be read are gone: `failOnDataLoss` is true."""


class MalformedMessageError(ConnectorError):
    """A stored message cannot be read as the columns need it: `mode` is FAILFAST."""


class NodeError(ConnectorError):
    """The node could not be reached, did not answer, or refused; what can pass by itself was tried again as often as the options say."""
