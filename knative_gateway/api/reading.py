"""Reading a request: its body and the parameters of writes. [io]"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request

from knative_gateway.api.protobuf import MEDIA_TYPE, ProtobufError, read_protobuf
from knative_gateway.api.stepping import in_thread
from knative_gateway.resources.admission import FieldValidation
from knative_gateway.resources.documents.large import INLINE_CHARACTERS
from knative_gateway.resources.documents.manifests import ManifestError, read_json, read_yaml
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import StatusError, bad_request, unsupported_media

YAML_BYTES_MAX: Final = 1 << 20
"""Bytes of a YAML body. The limit is lower than for JSON because reading YAML is slow."""
YAML_BYTES_INLINE: Final = 512
"""Bytes of a YAML body that is read on the event loop: that takes about a millisecond."""
MANAGER_CHARACTERS_MAX: Final = 128
T = TypeVar("T")
_YAML: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", json_patches.APPLY})


def media_type(request: Request) -> str:
    """Return the Content-Type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body(request: Request, bytes_max: int) -> object:
    """Return the body as a document; None if it is empty.

    Raises:
      StatusError: the body is too large (413), of another media type (415), or not valid (400).
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        # While the body arrives, and not at its end: a client could send without an end.
        if len(raw) > bytes_max:
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {bytes_max}")
    if not raw.strip():
        return None
    type_ = media_type(request)
    try:
        # JSON is YAML too, and the JSON reader is much faster
        if type_ in _YAML and not raw.lstrip().startswith(b"{"):
            if len(raw) > YAML_BYTES_MAX:
                raise StatusError(
                    413,
                    "RequestEntityTooLarge",
                    f"Request entity too large: limit of YAML is {YAML_BYTES_MAX}",
                )
            documents = await _read(read_yaml, raw, YAML_BYTES_INLINE)
            if len(documents) != 1:
                raise bad_request(f"the body has {len(documents)} YAML documents, expected one")
            return documents[0]
        if type_ in {"", "application/json", *_YAML} or type_.endswith("+json"):
            return await _read(read_json, raw, INLINE_CHARACTERS)
        if type_ == MEDIA_TYPE:
            return await _read(read_protobuf, raw, INLINE_CHARACTERS)
    except (ManifestError, ProtobufError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from None
    accepted = "accepted media types include: application/json, application/yaml"
    raise unsupported_media(
        f"the body of the request was in an unknown format - {accepted} (not {type_[:100]})"
    )


async def _read(read: Callable[[bytes], T], raw: bytearray, inline_max: int) -> T:
    """Read a body. Larger ones than `inline_max` bytes are read in a thread, and do not delay deliveries."""
    work = partial(read, bytes(raw))
    return await in_thread(work) if len(raw) > inline_max else work()


def manager(request: Request) -> str:
    """Return the field manager: the parameter `fieldManager`, else the first word of the user agent.

    Raises:
      StatusError: the name is not valid (400).
    """
    name = (
        request.query_params.get("fieldManager")
        # As in Kubernetes: kubectl is a manager under its own name, without a parameter.
        or request.headers.get("user-agent", "").partition("/")[0]
        or "unknown"
    )
    if len(name) > MANAGER_CHARACTERS_MAX or not name.isprintable():
        raise bad_request(f"fieldManager: must have at most {MANAGER_CHARACTERS_MAX} printable characters")
    return name


def validation(request: Request) -> FieldValidation:
    """Return the treatment of unknown fields.

    Raises:
      StatusError: the value is not one of Strict, Warn, Ignore (400).
    """
    written = request.query_params.get("fieldValidation") or FieldValidation.WARN
    try:
        return FieldValidation(written)
    except ValueError:
        raise bad_request(
            f"fieldValidation: {written[:40]!r} is not one of {', '.join(FieldValidation)}"
        ) from None


def dry_run(request: Request, options: object = None) -> bool:
    """Return whether the request must not change the store.

    Raises:
      StatusError: the value is not All (400).
    """
    given = [value for value in request.query_params.getlist("dryRun") if value]
    if isinstance(options, Mapping) and isinstance(options.get("dryRun"), list):
        # A DELETE request has its options in the body.
        given += options["dryRun"]
    if any(value != "All" for value in given):
        raise bad_request("dryRun: the only value is All")
    return bool(given)
