"""The errors of the connector. Each states the problem, its location, and a remedy. Pure.

`ConnectorError` is the root. Its three parts are the arguments of the exception, because errors are pickled
between Spark's worker processes.
"""


class ConnectorError(Exception):
    """`what`: the problem.

    `where`: log, partition, offset or option; may be empty. `remedy`: may be empty.
    """

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where, remedy)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        location = f" ({self.where})" if self.where else ""
        return f"{self.what}{location}. {self.remedy}" if self.remedy else f"{self.what}{location}"


class OptionError(ConnectorError):
    """An option is unknown, missing, out of bounds, or excludes another one.

    Raised before any request to the node.
    """


class SchemaError(ConnectorError):
    """A column is unknown, or its type does not fit the source or the sink."""


class RowError(ConnectorError):
    """A row cannot be written because of its content."""


class OffsetError(ConnectorError):
    """Offsets are not valid: wrong JSON, a partition that does not exist, or a time after the last event."""


class StreamNotFoundError(ConnectorError):
    """The log does not exist, or the user may not see it."""


class DataLossError(ConnectorError):
    """Requested events no longer exist, and `failOnDataLoss` is true."""


class MalformedMessageError(ConnectorError):
    """A stored message does not fit the columns, and `mode` is FAILFAST."""


class NodeError(ConnectorError):
    """The node is unreachable, did not answer, or refused the request.

    Temporary failures were retried according to the options.
    """
