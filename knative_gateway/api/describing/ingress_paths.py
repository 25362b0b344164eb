"""The paths other than objects for the OpenAPI document: ingress, health, metrics. Pure."""

from typing import Final

from knative_gateway.api.actions import GROUP_VERSION
from knative_gateway.resources.objects import Object

_CODES: Final = {
    "202": "stored, durably",
    "400": "not a valid CloudEvent; the body has the reason",
    "401": "the token is missing or not valid",
    "403": "the user of this token may not send to this address",
    "404": "the address does not exist",
    "413": "too large",
    "415": "the media type is not supported",
    "429": "the log does not accept more events now; retry after the time in Retry-After",
    "503": "the log is not available; whether the event was stored is not known",
}

_REFUSED: Final = ("401", "403", "404")


def _address(what: str) -> Object:
    event = {"schema": {"type": "string", "format": "binary"}}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("namespace", "name")
    ]
    post = {
        "summary": f"Send CloudEvents to a {what}: binary, structured or batched.",
        "tags": ["events"],
        "requestBody": {
            "content": {
                "application/cloudevents+json": {"schema": {"type": "object"}},
                "application/cloudevents-batch+json": {
                    "schema": {"type": "array", "items": {"type": "object"}}
                },
                "*/*": event,
            }
        },
        "responses": {code: {"description": words} for code, words in _CODES.items()},
    }
    options = {
        "summary": "The CloudEvents webhook handshake.",
        "tags": ["events"],
        "responses": {"200": {"description": "OK"}}
        | {code: {"description": _CODES[code]} for code in _REFUSED},
    }
    return {"post": post, "options": options, "parameters": parameters}


def _plain(summary: str) -> Object:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    answers = {
        "200": {"description": "OK", **text},
        "503": {"description": "not now; the text says why", **text},
    }
    return {"get": {"summary": summary, "tags": ["operation"], "responses": answers, "security": [{}]}}


def _gateway() -> Object:
    answers: Object = {
        "200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}},
        "401": {"description": _CODES["401"]},
        "403": {"description": "the user of this token may not read everything"},
        "503": {"description": "not known now; the message says why"},
    }
    summary = "The gateway: whether it is ready, figures, warnings with remedies, settings, recent changes."
    return {"get": {"summary": summary, "tags": ["operation"], "responses": answers}}


INGRESS: Final[Object] = {
    "/broker/{namespace}/{name}": _address("Broker"),
    "/channel/{namespace}/{name}": _address("Channel"),
    "/healthz": _plain("Whether the process is alive."),
    "/readyz": _plain("Whether the gateway is ready; 503 with the reason if not."),
    "/metrics": _plain("Metrics for Prometheus."),
    f"/apis/{GROUP_VERSION}/gateway": _gateway(),
}
