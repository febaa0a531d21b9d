"""Routes of the console: one template per page, and the static files.

The pages contain no data. Their scripts get it from `/api`, with the rights of the browser's session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from toolcrib import __version__
from toolcrib.console.static_files import StaticFiles

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


RenderPage = Callable[[Request, str, str], str]


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
