"""In what form a client wants its answer: plain objects, Tables, metadata alone. Pure.

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
    """The first form in an Accept header that is served.

    Raises:
        StatusError: none is (406).
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
        "only the following media types are accepted: application/json (as Table or PartialObjectMetadata of"
        " meta.k8s.io, too)"
    )
    raise StatusError(406, "NotAcceptable", message)


def ranges(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The media ranges of an Accept header in their order, with parameters.

    Weights are left alone: clients write the best first.
    """
    for part in accept.split(",", _PARTS_MAX)[:_PARTS_MAX]:
        media_type, *written = (piece.strip() for piece in part.split(";"))
        pairs = (piece.partition("=") for piece in written)
        yield media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}
