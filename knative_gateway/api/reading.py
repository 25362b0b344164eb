"""What a request says: its body and the parameters of writes. [io]"""

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from knative_gateway.api.protobuf import MEDIA_TYPE, ProtobufError, read_protobuf
from knative_gateway.resources.admission import FieldValidation
from knative_gateway.resources.documents.manifests import ManifestError, read_json, read_yaml
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import StatusError, bad_request, unsupported_media

YAML_BYTES_MAX: Final = 1 << 20
"""Reading it takes long."""
YAML_BYTES_INLINE: Final = 16 << 10
MANAGER_CHARACTERS_MAX: Final = 128
_YAML: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", json_patches.APPLY})


def media_type(request: Request) -> str:
    """The Content-Type less its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body(request: Request, bytes_max: int) -> object:
    """The body as the document it is; None if it is empty.

    Raises:
        StatusError: too large (413), of another media type (415), or no document (400).
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > bytes_max:
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {bytes_max}")
    if not raw.strip():
        return None
    type_ = media_type(request)
    try:
        if type_ in _YAML and not raw.lstrip().startswith(b"{"):  # JSON is YAML, and read much faster
            if len(raw) > YAML_BYTES_MAX:
                raise StatusError(
                    413,
                    "RequestEntityTooLarge",
                    f"Request entity too large: limit of YAML is {YAML_BYTES_MAX}",
                )
            # Large ones aside from the event loop: deliveries go on meanwhile.
            documents = (
                await asyncio.to_thread(read_yaml, bytes(raw))
                if len(raw) > YAML_BYTES_INLINE
                else read_yaml(bytes(raw))
            )
            if len(documents) != 1:
                raise bad_request(f"the body has {len(documents)} YAML documents, expected one")
            return documents[0]
        if type_ in {"", "application/json", *_YAML} or type_.endswith("+json"):
            return read_json(bytes(raw))
        if type_ == MEDIA_TYPE:
            return read_protobuf(bytes(raw))
    except (ManifestError, ProtobufError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from None
    accepted = "accepted media types include: application/json, application/yaml"
    raise unsupported_media(
        f"the body of the request was in an unknown format - {accepted} (not {type_[:100]})"
    )


def manager(request: Request) -> str:
    """Who writes: as the request says, else the first word of its user agent.

    Raises:
        StatusError: that cannot be a name (400).
    """
    name = (
        request.query_params.get("fieldManager")
        or request.headers.get("user-agent", "").partition("/")[0]
        or "unknown"
    )
    if len(name) > MANAGER_CHARACTERS_MAX or not name.isprintable():
        raise bad_request(f"fieldManager: must have at most {MANAGER_CHARACTERS_MAX} printable characters")
    return name


def validation(request: Request) -> FieldValidation:
    """What becomes of unknown fields.

    Raises:
        StatusError: it is none of the ways there are (400).
    """
    written = request.query_params.get("fieldValidation") or FieldValidation.WARN
    try:
        return FieldValidation(written)
    except ValueError:
        raise bad_request(
            f"fieldValidation: {written[:40]!r} is not one of {', '.join(FieldValidation)}"
        ) from None


def dry_run(request: Request, options: object = None) -> bool:
    """Whether nothing is to be stored.

    Raises:
        StatusError: it is asked for in a way that is not known (400).
    """
    given = [value for value in request.query_params.getlist("dryRun") if value]
    if isinstance(options, Mapping) and isinstance(options.get("dryRun"), list):
        given += options["dryRun"]
    if any(value != "All" for value in given):
        raise bad_request("dryRun: the only value is All")
    return bool(given)
