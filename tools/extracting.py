"""Archives are extracted with nothing outside of their folder."""

import tarfile
from pathlib import Path, PurePosixPath


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract all of an archive.

    Raises:
        tarfile.TarError: it has a file, or a link to a file, outside of the folder, or a device.
    """
    # Python has filters since 3.11.4, and Debian 12 has 3.11.2.
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    for member in archive.getmembers():
        is_link = member.issym() or member.islnk()
        places = [member.name, member.linkname] if is_link else [member.name]
        if not (is_link or member.isfile() or member.isdir()) or not all(map(_is_inside, places)):
            message = f"{member.name} is not extracted: it is a device, or is or leads outside of the folder"
            raise tarfile.TarError(message)
    archive.extractall(folder)


def _is_inside(place: str) -> bool:
    path = PurePosixPath(place)
    return not path.is_absolute() and ".." not in path.parts
