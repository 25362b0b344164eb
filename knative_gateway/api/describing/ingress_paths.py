"""The paths beside the objects, for the OpenAPI document: where events are sent, health, figures. Pure."""

from typing import Final

from knative_gateway.resources.objects import Object

_CODES: Final = {
    "202": "stored, durably",
    "400": "no CloudEvent; the body says why",
    "401": "no token, or one that is not believed",
    "403": "this token may not send here",
    "404": "there is no such address",
    "413": "too large",
    "415": "of a media type that is not taken",
    "429": "the log pushes back; Retry-After says when to try again",
    "503": "the log is away; nothing is known of this event",
}


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
        "summary": "What may be sent, as a CloudEvents webhook.",
        "tags": ["events"],
        "responses": {"200": {"description": "OK"}},
    }
    return {"post": post, "options": options, "parameters": parameters}


def _plain(summary: str) -> Object:
    answers = {"200": {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    return {"get": {"summary": summary, "tags": ["operation"], "responses": answers, "security": [{}]}}


INGRESS: Final[Object] = {
    "/broker/{namespace}/{name}": _address("Broker"),
    "/channel/{namespace}/{name}": _address("Channel"),
    "/healthz": _plain("Whether the process is alive."),
    "/readyz": _plain("Whether it can do its work; 503 with the reason if not."),
    "/metrics": _plain("Figures for Prometheus."),
}
