"""Why bytes are not an event: one class for each kind of reason. The message says what is wrong and where."""


class EventFormatError(ValueError):
    """The root of this package's errors."""


class InvalidEventError(EventFormatError):
    """The bytes are not a valid CloudEvent."""


class UnsupportedFormatError(EventFormatError):
    """The event is in an event format or a character set that this package cannot read."""


class TooManyEventsError(EventFormatError):
    """A batch has more events than the caller allows."""
