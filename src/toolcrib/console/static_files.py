"""The console's style sheet and scripts, under a path that contains their digest."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS: Final = {
    # The path changes with the content.
    "cache-control": "public, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "vary": "accept-encoding",
}


class StaticFiles:
    """All static files, held in memory."""

    def __init__(self) -> None:
        folder = files("toolcrib.console").joinpath("static")
        self._files = dict(sorted(_read_folder(folder, "").items()))
        self._compressed = {path: gzip.compress(content, mtime=0) for path, content in self._files.items()}
        digest = hashlib.sha256()
        for path, content in self._files.items():
            digest.update(f"{path} {len(content)} ".encode() + content)
        # Scripts import each other by relative paths, so all files share one digest.
        self._digest = digest.hexdigest()[:16]
        self.prefix = f"/static/{self._digest}"

    def route(self) -> Route:
        """Return the route of the files."""
        return Route("/static/{digest}/{path:path}", self._serve_file, methods=["GET"])

    async def _serve_file(self, request: Request) -> Response:
        path = request.path_params["path"]
        content = self._files.get(path)
        if content is None or request.path_params["digest"] != self._digest:
            return PlainTextResponse("no such file; reload the page", 404, {"cache-control": "no-store"})
        headers = dict(_HEADERS)
        if "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["content-encoding"] = self._compressed[path], "gzip"
        return Response(content, headers=headers, media_type=_MEDIA_TYPES[path[path.rfind(".") :]])


def _read_folder(folder: Traversable, prefix: str) -> dict[str, bytes]:
    content: dict[str, bytes] = {}
    for child in folder.iterdir():
        if child.is_dir():
            content |= _read_folder(child, f"{prefix}{child.name}/")
        else:
            content[f"{prefix}{child.name}"] = child.read_bytes()
    return content
