"""Static files: styles, scripts, icon. Loaded once, named by content hash, cached by browsers indefinitely.

Must never load anything from another host: third-party files are vendored in `static`, and a test checks their hashes.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject

PREFIX = "/static/"
MANIFEST = f"{PREFIX}manifest.webmanifest"
"""The URL of the manifest with which browsers install the console as an app."""
SERVICE_WORKER = "/service-worker.js"
"""The URL of the service worker. It is at the root, because a service worker acts for pages below its own path."""
_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_GOOD = "public, max-age=31536000, immutable"
_IMPORT = re.compile(rb'from "\./([a-z-]+\.js)"')
_SMALL = 400
"""Size in bytes below which compression is not worth it."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file. `path` contains the content hash, so a new version has a new URL."""

    path: str
    media_type: str
    body: bytes
    packed: bytes | None


@cache
def assets() -> Mapping[str, Asset]:
    """Return all files by plain name."""
    return {file.name: _read(file.name) for file in sorted(_FOLDER.iterdir()) if file.suffix in _TYPES}


def url(name: str) -> str:
    """Return the URL of a file."""
    return assets()[name].path


async def serve(request: Request) -> Response:
    """Serve a file by its URL; 404 for the URL of another version."""
    asset = _by_path().get(request.url.path)
    if asset is None:
        raise NotFound("route.unknown", f"{request.url.path} does not exist.")
    headers = {"cache-control": _FOR_GOOD, "vary": "accept-encoding"}
    if asset.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, media_type=asset.media_type, headers={**headers, "content-encoding": "gzip"})
    return Response(asset.body, media_type=asset.media_type, headers=headers)


async def serve_manifest(_: Request) -> Response:
    """Serve the manifest of the app."""
    icon = {"src": url("icon.svg"), "type": "image/svg+xml", "sizes": "any", "purpose": "any"}
    shape: JsonObject = {
        "id": "/",
        "name": "Toolcrib",
        "short_name": "Toolcrib",
        "description": "The tool crib for AI agents",
        "start_url": "/waiting",
        "scope": "/",
        "display": "standalone",
        "theme_color": "#8a4b00",
        "background_color": "#f6f6f4",
        "icons": [icon],
    }
    return JSONResponse(shape, media_type="application/manifest+json")


async def serve_service_worker(_: Request) -> Response:
    """Serve the service worker, which browsers compare with the one they have."""
    asset = assets()["service-worker.js"]
    return Response(asset.body, media_type=asset.media_type, headers={"cache-control": "no-cache"})


@cache
def _by_path() -> Mapping[str, Asset]:
    return {asset.path: asset for asset in assets().values()}


@cache
def _read(name: str) -> Asset:
    file = _FOLDER / name
    body = file.read_bytes()
    if file.suffix == ".js":  # imports use plain names; rewrite them to hashed URLs
        body = _IMPORT.sub(lambda found: b'from "%b"' % _read(found[1].decode()).path.encode(), body)
    digest = hashlib.sha256(body).hexdigest()[:10]
    packed = gzip.compress(body, 9, mtime=0) if len(body) > _SMALL else None
    return Asset(f"{PREFIX}{file.stem}.{digest}{file.suffix}", _TYPES[file.suffix], body, packed)
