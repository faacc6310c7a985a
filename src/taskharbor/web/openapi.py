"""The description of the API for programs, at /openapi.json: every body and every answer with its schema."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF: Final = "#/components/schemas/{model}"
_BODIES: list[type[BaseModel]] = []
_PROBLEM: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "description": "What kind of problem: /problems/ and a word."},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "Finds the line in the server's log."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["at", "problem"],
                "properties": {"at": {"type": "string"}, "problem": {"type": "string"}},
            },
        },
    },
    "additionalProperties": True,
}


def takes(model: type[BaseModel], media_type: str = "application/json", *, required: bool = True) -> dict[str, Any]:
    """`openapi_extra` of an operation that reads its body itself."""
    if model not in _BODIES:
        _BODIES.append(model)
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema}}}}


def install(app: FastAPI) -> None:
    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _described(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, bodies = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REF)
    schemas.update(bodies.get("$defs", {}))
    schemas["Problem"] = _PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "th_…"}}
    document["security"] = [{"token": []}]
    return document
