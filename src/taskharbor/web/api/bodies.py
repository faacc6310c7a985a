"""Bodies of requests, read within bounds and checked strictly; answers, written as JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError

from taskharbor.web.problems import Problem, of_validation
from taskharbor.web.threads import Threads

Model = TypeVar("Model", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")
JSON: Final = "application/json"
LITTLE: Final = 32_768
"""Bytes of JSON that are read or written in less time than a thread takes to be asked."""
_dump: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """A dependency: the JSON body as this model. Its operation describes it with `openapi.takes(model)`."""

    async def read(request: Request) -> Model:
        check_type(request, JSON)
        data = await request.body()
        return await aside(request, len(data), parsed, model, data)

    return read


def optional_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """The same where no body at all means the model's defaults."""

    async def read(request: Request) -> Model:
        data = await request.body()
        if not data:
            return model()
        check_type(request, JSON)
        return parsed(model, data)

    return read


def parsed(model: type[Model], data: bytes) -> Model:
    try:
        return model.__pydantic_validator__.validate_json(data)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise of_validation(error) from None


async def aside(request: Request, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function whose work grows with `size`: at once if that is little, else in a thread, where it holds up
    no other request."""
    if size <= LITTLE:
        return function(*args, **kwargs)
    threads: Threads = request.app.state.threads
    return await threads.run(function, *args, **kwargs)


def check_type(request: Request, *wanted: str) -> None:
    """A page from elsewhere cannot send these types without asking first, which is one reason to insist on them."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in wanted:
        raise Problem("unsupported-media-type", f"send the body as {wanted[0]}")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem("unsupported-media-type", "send the body as it is, without a content encoding")


def answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # In ASCII, so that any text of a job can be sent, halves of surrogate pairs too.
    return Response(_dump(data).encode("ascii"), status, headers, JSON)
