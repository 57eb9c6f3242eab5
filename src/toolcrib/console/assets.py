"""The files a page loads: style, scripts, icon. Read once, named by their content, kept by browsers for good.

Nothing is fetched from anywhere else, ever: what others wrote lies in `static` with its hash under test.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from toolcrib.errors import NotFound

PREFIX = "/static/"
_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_GOOD = "public, max-age=31536000, immutable"
_IMPORT = re.compile(rb'from "\./([a-z-]+\.js)"')
_SMALL = 400
"""Bytes below which compressing gains nothing."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file. `path` has its hash in it, so a new version has another address."""

    path: str
    media_type: str
    body: bytes
    packed: bytes | None


@cache
def assets() -> Mapping[str, Asset]:
    """All files by their plain names."""
    return {file.name: _read(file.name) for file in sorted(_FOLDER.iterdir()) if file.suffix in _TYPES}


def url(name: str) -> str:
    """The address of a file."""
    return assets()[name].path


async def serve(request: Request) -> Response:
    """A file by its address; one of another version is not there any more."""
    asset = _by_path().get(request.url.path)
    if asset is None:
        raise NotFound("route.unknown", f"There is nothing at {request.url.path}.")
    headers = {"cache-control": _FOR_GOOD, "vary": "accept-encoding"}
    if asset.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, media_type=asset.media_type, headers={**headers, "content-encoding": "gzip"})
    return Response(asset.body, media_type=asset.media_type, headers=headers)


@cache
def _by_path() -> Mapping[str, Asset]:
    return {asset.path: asset for asset in assets().values()}


@cache
def _read(name: str) -> Asset:
    file = _FOLDER / name
    body = file.read_bytes()
    if file.suffix == ".js":  # modules name each other plainly; on the page each has the address of its content
        body = _IMPORT.sub(lambda found: b'from "%b"' % _read(found[1].decode()).path.encode(), body)
    digest = hashlib.sha256(body).hexdigest()[:10]
    packed = gzip.compress(body, 9, mtime=0) if len(body) > _SMALL else None
    return Asset(f"{PREFIX}{file.stem}.{digest}{file.suffix}", _TYPES[file.suffix], body, packed)
