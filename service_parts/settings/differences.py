"""Which settings differ. Pure."""

from collections.abc import Iterator

from pydantic import BaseModel


def differences(old: BaseModel, new: BaseModel, above: str = "") -> Iterator[str]:
    """Yield the names of the settings that differ. Names in sections are written as `limits.credit`."""
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if isinstance(before, BaseModel) and type(before) is type(after):
            yield from differences(before, after, f"{above}{name}.")
        else:
            yield above + name
