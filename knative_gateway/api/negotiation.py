"""The form of an answer: plain objects, Tables, or metadata only. Pure.

Spec: Kubernetes API concepts, "Alternate representations of resources".
"""

from collections.abc import Iterator
from enum import StrEnum

from knative_gateway.resources.refusals import StatusError

_JSON = frozenset({"application/json", "application/*", "*/*", ""})
_PARTS_MAX = 50


class Form(StrEnum):
    """The forms of objects and lists."""

    PLAIN = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_FORMS = {
    "": Form.PLAIN,
    "Table": Form.TABLE,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA,
}


def form(accept: str) -> Form:
    """Return the first form in an Accept header that is supported.

    Raises:
      StatusError: no form in the header is supported (406).
    """
    for media_type, parameters in ranges(accept):
        wanted = _FORMS.get(parameters.get("as", ""))
        if (
            media_type in _JSON
            and wanted is not None
            and (wanted is Form.PLAIN or parameters.get("g") == "meta.k8s.io")
        ):
            return wanted
    message = (
        "only the following media types are accepted: application/json (also as Table or "
        "PartialObjectMetadata of"
        " meta.k8s.io, too)"
    )
    raise StatusError(406, "NotAcceptable", message)


def ranges(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the media ranges of an Accept header with their parameters, in their order.

    Weights are ignored: Kubernetes clients write the preferred range first.
    """
    # The client chooses the length of the header.
    for part in accept.split(",", _PARTS_MAX)[:_PARTS_MAX]:
        media_type, *written = (piece.strip() for piece in part.split(";"))
        pairs = (piece.partition("=") for piece in written)
        yield media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}
