"""The entry of `toolcrib add --openapi`: an API as a server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.cli.printing import print_note, sanitize, wrap
from toolcrib.config.fields import escape_variables
from toolcrib.config.server_entry import check_url
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.hosts import is_loopback
from toolcrib.gateway.mcp.upstream.openapi.document import (
    OpenApiDocument,
    get_mapping,
    get_text,
    is_private_host,
    is_remote,
    is_same_host,
    load_document,
    read_server_url,
)
from toolcrib.gateway.mcp.upstream.openapi.operations import read_operations
from toolcrib.hub.directory import format_tool_count

_FETCH_SECONDS: Final = 15.0
_MAX_SHOWN_PROBLEMS: Final = 3
_INVALID_NAME_CHARS: Final = re.compile(r"[^a-z0-9]+")


def build_api_entry(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry of an API; print what it has and what it needs.

    The address of the API is written to the entry, so that a changed document can't change it.
    """
    source = options["openapi"]
    if "://" in source:
        check_url(source, ("--openapi",), "https://example.com/openapi.json")
    else:
        source = str(Path(source).expanduser().absolute())
    uses_proxy = not is_loopback(urlsplit(source).hostname or "")
    document = load_document(source, _FETCH_SECONDS, uses_proxy=uses_proxy)
    base_url = _choose_base_url(document, options["base_url"])
    found = read_operations(document, base_url)
    if not found.operations:
        raise InvalidConfig(f"{source}: has no operation that can be used; {(*found.problems, 'it has no paths')[0]}")
    count = format_tool_count(len(found.operations))
    print_note(wrap(f"{count}; calls go to {sanitize(base_url)}"))
    if found.problems:
        shown = "; ".join(map(sanitize, found.problems[:_MAX_SHOWN_PROBLEMS]))
        print_note(wrap(f"{len(found.problems):,} left out: {shown}"))
    if not (options["headers"] or options["query"] or options["basic_auth"]):
        for hint in dict.fromkeys(_list_credential_hints(document)):
            print_note(wrap(hint))
    name = name or _INVALID_NAME_CHARS.sub("-", document.title.lower()).strip("-")[:40]
    entry = {
        "openapi": escape_variables(source),
        "baseUrl": base_url if options["base_url"] else escape_variables(base_url),
    }
    if options["basic_auth"]:
        entry["basicAuth"] = options["basic_auth"]
    return name, entry


def _choose_base_url(document: OpenApiDocument, given: str) -> str:
    if given:
        check_url(given, ("--base-url",), "https://api.example.com/v1")
        return given
    url = read_server_url(document)
    if is_remote(document.source) and is_private_host(url) and not is_same_host(url, document.source):
        raise InvalidConfig(
            f"{document.source}: the API would be {url}, an address of a private network; "
            "pass it with --base-url if you trust it"
        )
    return url.rstrip("/")


def _list_credential_hints(document: OpenApiDocument) -> Iterator[str]:
    """Yield how to pass the credentials that a document declares."""
    schemes = get_mapping(get_mapping(document.root, "components"), "securitySchemes")
    for scheme in schemes.values():
        if not isinstance(scheme, Mapping):
            continue
        kind, header = get_text(scheme, "type"), get_text(scheme, "name")
        if kind == "apiKey" and get_text(scheme, "in") == "query":
            yield f"If the API needs a key: --query '{sanitize(header)}=${{API_KEY}}'"
        elif kind == "apiKey" and get_text(scheme, "in") == "header":
            yield f"If the API needs a key: --header '{sanitize(header)}: ${{API_KEY}}'"
        elif kind == "http" and get_text(scheme, "scheme").lower() == "basic":
            yield "If the API needs a password: --basic-auth '${API_USER}:${API_PASSWORD}'"
        elif kind in ("http", "oauth2", "openIdConnect"):
            yield "If the API needs a token: --header 'Authorization: Bearer ${API_TOKEN}'"
