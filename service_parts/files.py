"""[io] Reads files that settings name."""

from pathlib import Path

from service_parts.errors import SettingError


def read_file(path: Path, bytes_max: int) -> bytes:
    """Return the contents of a file.

    Raises:
        SettingError: the file cannot be read or is too large. The message names the file.
    """
    try:
        with path.open("rb") as file:
            # One byte more than allowed shows that the file is larger, without reading all of it.
            data = file.read(bytes_max + 1)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise SettingError(message) from error
    if len(data) > bytes_max:
        message = f"{path} is larger than {bytes_max} bytes"
        raise SettingError(message)
    return data
