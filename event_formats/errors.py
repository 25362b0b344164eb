"""Why bytes are not an event. Each class is one reason; the message names what is wrong and where."""


class EventFormatError(ValueError):
    """Root of the errors that this package raises on purpose."""


class InvalidEventError(EventFormatError):
    """It is not a valid CloudEvent."""


class UnsupportedFormatError(EventFormatError):
    """It is in an event format or a character set that this package does not read."""


class TooManyEventsError(EventFormatError):
    """A batch has more events than the caller allows."""
