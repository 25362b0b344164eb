"""The error of this package. Pure."""


class SettingError(Exception):
    """A setting cannot be used. The message says why and where it was read.

    Callers raise their own error from it, and write the name of the setting before the message where it lacks
    one.
    """
