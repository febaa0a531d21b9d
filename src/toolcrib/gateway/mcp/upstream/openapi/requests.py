"""Build the HTTP request of a call to an API, and get the token it needs."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import anyio
import httpx2

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.mcp.upstream.openapi import operations

MAX_TOKEN_RESPONSE_BYTES: Final = 64 * 1024
# A token without an expiry time is used for this long.
DEFAULT_TOKEN_SECONDS: Final = 3_600.0
# A token is renewed before it expires, because a request takes time.
_EARLY_SECONDS: Final = 30.0
_SEPARATORS: Final = {"spaceDelimited": " ", "pipeDelimited": "|"}
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_HEADER_BREAK: Final = re.compile(r"[\r\n\0]")


class ClientCredentials:
    """Gets access tokens, and keeps each until it expires or the API rejects it."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._lock = anyio.Lock()
        self._token = ""
        self._expires = 0.0
        # Most servers read the credentials from a header, some only from the body.
        self._sends_header = True

    async def get_token(self) -> str:
        """Return a valid token; raise `RequestFailed` if the server issues none."""
        async with self._lock:
            while not (self._token and time.monotonic() < self._expires):
                timeout = httpx2.Timeout(self._server.connect_seconds)
                # A client without the headers of the API, which belong to another host.
                async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False) as client:
                    response = await client.send(self._build_token_request(), stream=True)
                    self._store_token(response, await _read_body(response))
            return self._token

    def reject_token(self, token: str) -> None:
        """Forget a token that the API does not accept."""
        if token == self._token:
            self._token = ""

    def _build_token_request(self) -> httpx2.Request:
        server = self._server
        form = {"grant_type": "client_credentials"}
        if server.oauth_scope:
            form["scope"] = server.oauth_scope
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self._sends_header:
            pair = f"{quote(server.oauth_client_id, safe='')}:{quote(server.oauth_client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": server.oauth_client_id, "client_secret": server.oauth_client_secret}
        return httpx2.Request("POST", server.oauth_token_url, headers=headers, content=urlencode(form).encode())

    def _store_token(self, response: httpx2.Response, fields: Mapping[str, Any]) -> None:
        """Keep the token of a response; raise `RequestFailed` if there is none."""
        token, seconds = fields.get("access_token"), fields.get("expires_in")
        if response.is_success and isinstance(token, str) and token.isascii() and token.isprintable():
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            lifetime = float(seconds) if is_number and seconds else DEFAULT_TOKEN_SECONDS
            self._token = token
            self._expires = time.monotonic() + max(lifetime - _EARLY_SECONDS, 1.0)
            return
        if response.status_code in (400, 401) and self._sends_header:
            self._sends_header = False
            return
        self._sends_header = True
        host = urlsplit(self._server.oauth_token_url).hostname
        reason = str(fields.get("error", "")) if fields.get("error") else "no token"
        raise RequestFailed(
            f"{host} did not issue an access token (HTTP {response.status_code}: {reason:.100}); the user checks "
            "`oauthClientId`, `oauthClientSecret` and `oauthScope` in toolcrib.json"
        )


async def _read_body(response: httpx2.Response) -> dict[str, Any]:
    """Return the members of a JSON response, or nothing if it is too large or no JSON object."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_TOKEN_RESPONSE_BYTES:
            return {}
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


class ApiRequest(NamedTuple):
    """A request without the address and the credentials of the API."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    # The keyword arguments of the HTTP client for the body.
    body: dict[str, Any]


def build_request(operation: operations.ApiOperation, arguments: Mapping[str, Any]) -> ApiRequest:
    """Return the request for a call; raise `RequestFailed` if an argument is missing or can't be sent."""
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    in_path: dict[str, str] = {}
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            if parameter.is_required:
                raise RequestFailed(f"`{parameter.argument}` is missing")
            continue
        if parameter.location == "path":
            in_path[parameter.name] = _encode_segment(parameter, value)
        elif parameter.location == "query":
            query += _list_pairs(parameter, value)
        elif parameter.location == "header":
            headers[parameter.name] = _check_header(parameter, _join_simple(value, parameter.explode))
        else:
            cookies += [
                f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in _list_pairs(parameter, value)
            ]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    body = _build_body(operation.body, arguments) if operation.body else {}
    if "content" in body and operation.body:
        headers["Content-Type"] = operation.body.media_type.replace("*/*", "application/json")
    path = _PLACEHOLDER.sub(lambda match: in_path.get(match[1], match[0]), operation.path)
    return ApiRequest(operation.method, path, query, headers, body)


def _encode_segment(parameter: operations.ApiParameter, value: Any) -> str:
    """Return a value as one segment of a path, so that it can't lead to another path."""
    text = _join_simple(value, parameter.explode)
    if parameter.style == "label":
        text = f".{text}"
    elif parameter.style == "matrix":
        return f";{quote(parameter.name, safe='')}={quote(text, safe='')}"
    if text in ("", ".", ".."):
        raise RequestFailed(f"`{parameter.argument}` must not be {text!r}; it is a part of the path")
    return quote(text, safe="")


def _list_pairs(parameter: operations.ApiParameter, value: Any) -> list[tuple[str, str]]:
    """Return a query parameter in its style, as pairs of name and text."""
    if parameter.is_json:
        return [(parameter.name, json.dumps(value, ensure_ascii=False))]
    if isinstance(value, Mapping):
        if parameter.style == "deepObject":
            return list(_iter_deep_pairs(parameter.name, value))
        if parameter.explode:
            return [(str(name), _to_text(item)) for name, item in value.items()]
        return [(parameter.name, _join_simple(value, False))]
    if isinstance(value, list):
        if parameter.explode:
            return [(parameter.name, _to_text(item)) for item in value]
        return [(parameter.name, _SEPARATORS.get(parameter.style, ",").join(map(_to_text, value)))]
    return [(parameter.name, _to_text(value))]


def _iter_deep_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a nested value as `name[key]=text`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iter_deep_pairs(f"{name}[{key}]", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _iter_deep_pairs(f"{name}[{number}]", item)
    else:
        yield name, _to_text(value)


def _join_simple(value: Any, explode: bool) -> str:
    if isinstance(value, Mapping):
        sign = "=" if explode else ","
        return ",".join(f"{key}{sign}{_to_text(item)}" for key, item in value.items())
    return ",".join(map(_to_text, value)) if isinstance(value, list) else _to_text(value)


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _check_header(parameter: operations.ApiParameter, text: str) -> str:
    if _HEADER_BREAK.search(text):
        raise RequestFailed(f"`{parameter.argument}` must not contain line breaks; it is sent as a header")
    try:
        text.encode("ascii")
    except UnicodeEncodeError:
        return quote(text)
    return text


def _build_body(body: operations.ApiBody, arguments: Mapping[str, Any]) -> dict[str, Any]:
    value: Any = arguments.get(operations.BODY_ARGUMENT)
    is_given = operations.BODY_ARGUMENT in arguments
    if body.members:
        value = {name: arguments[name] for name in body.members if name in arguments}
        is_given = bool(value)
    if not is_given:
        if body.is_required and not body.members:
            raise RequestFailed(f"`{operations.BODY_ARGUMENT}` is missing")
        if not body.is_required:
            return {}
    if body.media_type.startswith(operations.FORM_TYPE):
        return {"data": _group_pairs(value)}
    if body.media_type.startswith(operations.MULTIPART_TYPE):
        return {"files": list(_iter_form_parts(value))}
    if body.media_type.startswith("text/"):
        return {"content": _to_text(value).encode()}
    return {"content": json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")}


def _group_pairs(value: Any) -> dict[str, list[str]]:
    """Return the fields of a form; nested values are written as `name[key]`."""
    grouped: dict[str, list[str]] = {}
    for name, item in (value if isinstance(value, Mapping) else {}).items():
        if isinstance(item, list) and not any(isinstance(one, Mapping | list) for one in item):
            grouped[str(name)] = list(map(_to_text, item))
            continue
        for key, text in _iter_deep_pairs(str(name), item):
            grouped.setdefault(key, []).append(text)
    return grouped


def _iter_form_parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a multipart body. A value `data:…;base64,…` is sent as a file."""
    for name, item in (value if isinstance(value, Mapping) else {}).items():
        for one in item if isinstance(item, list) else [item]:
            yield str(name), _read_data_url(str(name), one) or (None, _to_text(one))


def _read_data_url(name: str, value: Any) -> tuple[str, bytes, str] | None:
    if not isinstance(value, str) or not value.startswith("data:") or ";base64," not in value[:200]:
        return None
    media_type, _, content = value.removeprefix("data:").partition(";base64,")
    try:
        return name, base64.b64decode(content, validate=True), media_type or "application/octet-stream"
    except (binascii.Error, ValueError):
        raise RequestFailed(f"`{name}` is not valid base64") from None
