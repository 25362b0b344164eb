"""Whether this node has the library for the compression of a log."""

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError
from amqp_streams.log_settings import Compression
from amqp_streams.wire.batched.compression import available
from service_parts.extras import MissingExtraError


def load(settings: LogSettings) -> None:
    """Import the library, which takes milliseconds: not on an event loop that serves."""
    available(settings.compression)


def require_codec(settings: LogSettings) -> None:
    """Check that this node can compress segments as the settings of a log say.

    Raises:
        SettingRefusedError: the library is not installed.
    """
    name = settings.compression
    if name != Compression.NONE and available(name) is None:
        what = f"the setting compression = {str(name)!r}"
        raise SettingRefusedError(str(MissingExtraError(what, "compression")))
