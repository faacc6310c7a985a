"""The files that pages are made of, from memory. An address changes with the file, so that browsers may keep it."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskharbor.web.problems import not_found

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
_KEEP: Final = {"cache-control": "public, max-age=31536000, immutable", "vary": "Accept-Encoding"}

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    content: bytes
    packed: bytes
    media_type: str
    mark: str


@cache
def assets() -> dict[str, Asset]:
    """By the path below /static."""
    found: dict[str, Asset] = {}

    def collect(folder: Traversable, path: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                collect(each, f"{path}{each.name}/")
                continue
            content = each.read_bytes()
            ending = each.name[each.name.rfind(".") :] if "." in each.name else ""
            media_type = _TYPES.get(ending, _TYPES[""])
            mark = sha256(content).hexdigest()[:10]
            found[path + each.name] = Asset(content, gzip.compress(content, mtime=0), media_type, mark)

    collect(files("taskharbor.web").joinpath("static"), "")
    return found


def address(path: str) -> str:
    """Where a page finds an asset."""
    return f"/static/{path}?v={assets()[path].mark}"


@router.get("/static/{path:path}")
async def static(path: str, request: Request) -> Response:
    asset = assets().get(path)
    if asset is None:
        raise not_found()
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**_KEEP, "content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=_KEEP, media_type=asset.media_type)


@router.get("/favicon.ico")
async def icon() -> Response:
    return Response(
        assets()["harbor.svg"].content, headers={"cache-control": "max-age=86400"}, media_type="image/svg+xml"
    )
