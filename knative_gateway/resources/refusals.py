"""Errors of the API in the form of Kubernetes: a Status with code, reason, and a cause for each field.

Spec: Kubernetes API conventions, "Response Status Kind".
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from knative_gateway.errors import GatewayError


class Because(StrEnum):
    """The kind of error of a field. The values are those of Kubernetes."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TYPE = "FieldValueTypeInvalid"
    CONFLICT = "FieldManagerConflict"


_SUMMARY: Final = {
    Because.REQUIRED: "Required value",
    Because.INVALID: "Invalid value",
    Because.NOT_SUPPORTED: "Unsupported value",
    Because.FORBIDDEN: "Forbidden",
    Because.TOO_LONG: "Too long",
    Because.TYPE: "Invalid value",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One error in one field.

    `field` is the path in the object, for example `spec.delivery.retry` or `spec.filters[0].exact`.
    """

    because: Because
    field: str
    words: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}" if self.field else self.detail

    @property
    def detail(self) -> str:
        """The message without the path."""
        summary = _SUMMARY.get(self.because)
        if summary is None:
            return self.words
        return f"{summary}: {self.words}" if self.words else summary


class StatusError(GatewayError):
    """A refused request. `code` is the HTTP status; `status()` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[Cause] = (),
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.reason: Final = reason
        self.causes: Final = tuple(causes)
        self.details: Final = dict(details or {})

    def status(self) -> dict[str, object]:
        """Return the Status object."""
        details = dict(self.details)
        if self.causes:
            details["causes"] = [
                {"reason": cause.because.value, "message": cause.detail, "field": cause.field}
                for cause in self.causes
            ]
        body: dict[str, object] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
        }
        return {**body, "reason": self.reason, **({"details": details} if details else {}), "code": self.code}


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """The object breaks a rule of its kind (422)."""
    words = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(map(str, causes)) + "]"
    full = f"{kind}.{group}" if group else kind
    details: dict[str, object] = {"name": name, "group": group, "kind": kind}
    return StatusError(422, "Invalid", f'{full} "{name}" is invalid: {words}', causes=causes, details=details)


def bad_request(message: str) -> StatusError:
    """The request is malformed (400)."""
    return StatusError(400, "BadRequest", message)


def check_options(action: str, options: Iterable[str], known: Container[str]) -> None:
    """Check the names of the options of an action.

    Raises:
        StatusError: the action does not have an option of this name (400).
    """
    for name in options:
        if name not in known:
            message = f"{action} does not have an option {name[:40]!r}"
            raise bad_request(message)


def not_found(group: str, plural: str, name: str) -> StatusError:
    """The object does not exist (404)."""
    return StatusError(
        404,
        "NotFound",
        f'{_resource(group, plural)} "{name}" not found',
        details=_details(group, plural, name),
    )


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """An object with this name exists (409)."""
    return StatusError(
        409,
        "AlreadyExists",
        f'{_resource(group, plural)} "{name}" already exists',
        details=_details(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, words: str) -> StatusError:
    """The stored object is not the one that the client expects (409)."""
    message = f'Operation cannot be fulfilled on {_resource(group, plural)} "{name}": {words}'
    return StatusError(409, "Conflict", message, details=_details(group, plural, name))


def outdated(group: str, plural: str, name: str) -> StatusError:
    """Another client has changed the object since this client read it (409)."""
    return conflict(
        group,
        plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def apply_conflict(causes: Sequence[Cause]) -> StatusError:
    """A server-side apply would change fields of other managers (409)."""
    plural = "" if len(causes) == 1 else "s"
    words = "; ".join(f"{cause.words}: {cause.field}" for cause in causes)
    return StatusError(
        409, "Conflict", f"Apply failed with {len(causes)} conflict{plural}: {words}", causes=causes
    )


def unsupported_media(message: str) -> StatusError:
    """The media type of the body is not supported (415)."""
    return StatusError(415, "UnsupportedMediaType", message)


def gone(message: str) -> StatusError:
    """The resourceVersion is older than the changes that are kept (410)."""
    return StatusError(410, "Expired", message)


def _resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, object]:
    return {"name": name, **({"group": group} if group else {}), "kind": plural}
