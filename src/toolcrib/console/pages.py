"""Routes of the console: one template per page, and the static files.

The pages contain no data. Their scripts get it from `/api`, with the rights of the browser's session.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from toolcrib import __version__

_MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS: Final = {
    # The path changes with the content.
    "cache-control": "public, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "vary": "accept-encoding",
}
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # Images in the results of tools are `data:` URLs.
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        # No script can write HTML.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
PAGE_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

RenderPage = Callable[[Request, str, str], str]


class StaticFiles:
    """All static files, kept in memory."""

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


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page in the navigation. Its template, script and icon have its name."""

    name: str
    title: str
    path: str
    group: str


PAGES: Final = (
    ConsolePage("overview", "Overview", "/", ""),
    ConsolePage("search", "Search", "/search", "Tools"),
    ConsolePage("catalog", "Catalog", "/catalog", "Tools"),
    ConsolePage("servers", "Servers", "/servers", "Tools"),
    ConsolePage("activity", "Activity", "/activity", "Traffic"),
    ConsolePage("sessions", "Sessions", "/sessions", "Traffic"),
    ConsolePage("llm", "LLM", "/llm", "Traffic"),
    ConsolePage("decisions", "Decisions", "/decisions", "Control"),
    ConsolePage("access", "Access", "/access", "Control"),
)


def build_console_routes() -> list[BaseRoute]:
    """Return the routes of the console."""
    static = StaticFiles()
    render = _build_renderer(static)
    routes: list[BaseRoute] = [
        Route(page.path, _build_endpoint(render, page.name, page.title), methods=["GET"], name=page.name)
        for page in PAGES
    ]
    routes.append(Route("/login", _build_endpoint(render, "login", "Log in"), methods=["GET"], name="login"))
    routes.append(static.route())
    return routes


def _build_renderer(static: StaticFiles) -> RenderPage:
    environment = Environment(
        loader=PackageLoader("toolcrib.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    groups = [(group, list(pages)) for group, pages in groupby(PAGES, lambda page: page.group)]
    environment.globals |= {"groups": groups, "static": static.prefix, "version": __version__}

    def render(request: Request, name: str, title: str) -> str:
        state: dict[str, Any] = request.scope.get("state", {})
        principal = state.get("principal")
        return environment.get_template(f"{name}.html").render(
            name=name,
            title=title,
            csrf_token=state.get("csrf_token", ""),
            principal=principal,
            has_full_access=not getattr(principal, "profile", None),
            can_log_out=bool(getattr(principal, "session", "")),
        )

    return render


def _build_endpoint(render: RenderPage, name: str, title: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        if "origin" in request.headers:
            # Browsers send it when a script reads the page, and the CSRF token is not for other sites.
            return PlainTextResponse("open this page in the browser", 403, PAGE_HEADERS)
        return Response(render(request, name, title), headers=PAGE_HEADERS, media_type="text/html")

    return endpoint
