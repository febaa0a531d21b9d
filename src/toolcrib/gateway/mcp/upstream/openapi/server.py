"""An MCP server inside the gateway whose tools are the operations of an HTTP API."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage

from toolcrib import __version__
from toolcrib.adapters.plain_json import repair_surrogates
from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import InvalidConfig, RequestFailed, ServerUnavailable
from toolcrib.gateway.hosts import is_loopback
from toolcrib.gateway.mcp.upstream.openapi.document import (
    OpenApiDocument,
    find_base_url,
    get_mapping,
    get_text,
    is_same_host,
    load_document,
)
from toolcrib.gateway.mcp.upstream.openapi.operations import RESULT_MEMBER, ApiOperation, read_operations
from toolcrib.gateway.mcp.upstream.openapi.requests import ApiRequest, ClientCredentials, build_request
from toolcrib.gateway.mcp.upstream.stdio import MessageStreams

MAX_REDIRECTS: Final = 3
MAX_ERROR_CHARS: Final = 4_000
MAX_LOGGED_PROBLEMS: Final = 10
_ACCEPT: Final = "application/json, text/*;q=0.9, */*;q=0.5"
_BUFFERED_MESSAGES: Final = 16
_log = logging.getLogger(__name__)


class LoadedApi(NamedTuple):
    """An API as its document describes it."""

    document: OpenApiDocument
    base_url: str
    operations: Mapping[str, ApiOperation]
    problems: tuple[str, ...]


@asynccontextmanager
async def open_api_server(server: ServerConfig) -> AsyncIterator[MessageStreams]:
    """Read a document and yield the message streams of a server for its operations."""
    api = await anyio.to_thread.run_sync(_load_api, server)
    _log_problems(server, api)
    headers = {"Accept": _ACCEPT, "User-Agent": f"toolcrib/{__version__}", **server.headers}
    user, separator, password = server.basic_auth.partition(":")
    auth = (user, password) if separator else None
    timeout = httpx2.Timeout(server.call_seconds, connect=server.connect_seconds)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED_MESSAGES)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED_MESSAGES)
    async with (
        httpx2.AsyncClient(headers=headers, auth=auth, timeout=timeout, follow_redirects=False) as client,
        anyio.create_task_group() as tasks,
    ):
        caller = ApiCaller(server, client, api)
        bus = InMemorySubscriptionBus()
        sdk_server = _build_server(server, caller, bus)
        tasks.start_soon(sdk_server.run, from_client, to_client, sdk_server.create_initialization_options())
        if server.refresh_seconds:
            tasks.start_soon(_refresh, server, caller, bus)
        try:
            yield from_server, to_server
        finally:
            tasks.cancel_scope.cancel()
            for stream in (to_server, from_client, to_client, from_server):
                stream.close()


async def _refresh(server: ServerConfig, caller: ApiCaller, bus: InMemorySubscriptionBus) -> None:
    """Read the document again at an interval, and announce changed tools. An unusable document changes nothing."""
    last_error = ""
    while True:
        await anyio.sleep(server.refresh_seconds)
        try:
            api = await anyio.to_thread.run_sync(_load_api, server)
        except ServerUnavailable as error:
            if str(error) != last_error:
                _log.warning("%s: the document cannot be read again, so its tools stay: %s", server.name, error)
            last_error = str(error)
            continue
        last_error = ""
        if api.document.root != caller.api.document.root:
            caller.api = api
            _log.info("%s: the document has changed; it has %d operations", server.name, len(api.operations))
            _log_problems(server, api)
            await bus.publish(ToolsListChanged())


def _load_api(server: ServerConfig) -> LoadedApi:
    try:
        uses_proxy = not is_loopback(urlsplit(server.openapi).hostname or "")
        document = load_document(server.openapi, server.connect_seconds, uses_proxy=uses_proxy)
        base_url = find_base_url(document, server.base_url)
    except InvalidConfig as error:
        raise ServerUnavailable(str(error)) from None
    configured = {"header": frozenset(map(str.lower, server.headers)), "query": frozenset(server.query)}
    found = read_operations(document, base_url, configured)
    if not found.operations:
        reason = found.problems[0] if found.problems else "its `paths` are empty"
        raise ServerUnavailable(f"its document has no operation that can be used: {reason}")
    return LoadedApi(document, base_url, {one.name: one for one in found.operations}, found.problems)


def _log_problems(server: ServerConfig, api: LoadedApi) -> None:
    for problem in api.problems[:MAX_LOGGED_PROBLEMS]:
        _log.warning("%s: an operation is left out: %s", server.name, problem)


def _build_server(server: ServerConfig, caller: ApiCaller, bus: InMemorySubscriptionBus) -> Server[Any]:
    async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        operations = caller.api.operations.values()
        tools = [types.Tool.model_validate(dict(operation.definition)) for operation in operations]
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        operation = caller.api.operations.get(params.name)
        if operation is None:
            return _text_result(f"there is no operation {params.name!r:.100}", is_error=True)
        return await caller.call(operation, params.arguments or {})

    document = caller.api.document
    return Server(
        document.title or server.name,
        version=get_text(get_mapping(document.root, "info"), "version"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
    )


class ApiCaller:
    """Sends the requests of calls to an API and turns the responses into results."""

    def __init__(self, server: ServerConfig, client: httpx2.AsyncClient, api: LoadedApi) -> None:
        self._server = server
        self._client = client
        self.api = api
        self._credentials = ClientCredentials(server) if server.oauth_token_url else None

    async def call(self, operation: ApiOperation, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Return the response of the API as a tool result; errors are results that a model can read."""
        try:
            result = await self._send(build_request(operation, arguments))
        except RequestFailed as error:
            return _text_result(str(error), is_error=True)
        except httpx2.TimeoutException:
            return _text_result(f"{self._host} did not answer in time", is_error=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return _text_result(f"{self._host} could not be reached ({type(error).__name__})", is_error=True)
        return _add_structure(result, operation)

    @property
    def _host(self) -> str:
        return urlsplit(self.api.base_url).hostname or self._server.name

    async def _send(self, request: ApiRequest) -> types.CallToolResult:
        url = httpx2.URL(f"{self.api.base_url}/{request.path.lstrip('/')}")
        if request.query or self._server.query:
            url = url.copy_merge_params([*request.query, *self._server.query.items()])
        method, body, headers = request.method, dict(request.body), dict(request.headers)
        is_renewed, redirects = False, 0
        while redirects <= MAX_REDIRECTS:
            token = await self._credentials.get_token() if self._credentials else ""
            if token:
                headers["Authorization"] = f"Bearer {token}"
            async with self._client.stream(method, url, headers=headers, **body) as response:
                if self._credentials and response.status_code == httpx2.codes.UNAUTHORIZED and not is_renewed:
                    # The API has revoked the token before its time.
                    self._credentials.reject_token(token)
                    is_renewed = True
                    continue
                target = self._find_redirect(response)
                if target is None:
                    return await self._read_response(response)
            if method not in ("GET", "HEAD"):
                break
            url = target
            redirects += 1
        text = f"HTTP {response.status_code}: {self._host} redirects this request; it is not followed"
        return _text_result(text, is_error=True)

    def _find_redirect(self, response: httpx2.Response) -> httpx2.URL | None:
        """Return the target of a redirect on the same host; raise `RequestFailed` for another host."""
        if not response.has_redirect_location:
            return None
        target = response.url.join(response.headers["location"])
        if not is_same_host(str(target), self.api.base_url):
            host = f"{target.host[:100]!r}" if target.host else "another address"
            raise RequestFailed(f"HTTP {response.status_code}: the API redirects to {host}, which is not followed")
        return target

    async def _read_response(self, response: httpx2.Response) -> types.CallToolResult:
        limit = self._server.max_result_bytes
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > limit:
                raise RequestFailed(
                    f"HTTP {response.status_code}: the response is larger than {limit:,} bytes; ask for less, for "
                    "example with a smaller page, or raise `maxResultBytes`"
                )
        status = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
        if response.is_success:
            return _render_content(response, bytes(content), status)
        text = _decode(response, bytes(content)).strip()
        cut = f"{text[:MAX_ERROR_CHARS]}…" if len(text) > MAX_ERROR_CHARS else text
        hints = list(filter(None, [cut, self._suggest_fix(response)]))
        return _text_result("\n".join([status, *hints]), is_error=True)

    def _suggest_fix(self, response: httpx2.Response) -> str:
        if response.status_code in (401, 403):
            server = self._server
            has_credentials = bool(server.headers or server.query or server.basic_auth or server.oauth_token_url)
            state = "rejects the credentials" if has_credentials else "needs credentials"
            keys = "`headers`, `query`, `basicAuth` or `oauthTokenUrl`"
            return f"The API {state}; the user sets them in toolcrib.json: {keys}."
        wait = response.headers.get("retry-after", "")
        return f"Try again after: {wait[:40]}" if response.status_code in (429, 503) and wait else ""


def _render_content(response: httpx2.Response, content: bytes, status: str) -> types.CallToolResult:
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not content:
        return _text_result(status)
    if media_type.startswith(("image/", "audio/")) and media_type != "image/svg+xml":
        data = base64.b64encode(content).decode()
        is_image = media_type.startswith("image/")
        part = (types.ImageContent if is_image else types.AudioContent)(data=data, mime_type=media_type)
        return types.CallToolResult(content=[part])
    if _is_text(media_type, content):
        return _text_result(_decode(response, content))
    return _text_result(f"{status}\nThe body has {len(content):,} bytes of {media_type or 'unknown type'}; not shown.")


def _add_structure(result: types.CallToolResult, operation: ApiOperation) -> types.CallToolResult:
    """Add the structured content to the result of an operation with an output schema."""
    schema = operation.definition.get("outputSchema")
    if schema is None or result.is_error:
        return result
    text = "".join(part.text for part in result.content if isinstance(part, types.TextContent))
    try:
        value = json.loads(repair_surrogates(text))
    except (ValueError, RecursionError):
        value = text
    is_wrapped = schema["properties"].keys() == {RESULT_MEMBER}
    structured = value if isinstance(value, dict) and not is_wrapped else {RESULT_MEMBER: value}
    return result.model_copy(update={"structured_content": structured})


def _is_text(media_type: str, content: bytes) -> bool:
    is_named = media_type.startswith("text/") or media_type.endswith(("json", "xml", "yaml", "javascript", "csv"))
    return is_named or (b"\0" not in content and content.decode(errors="ignore").encode() == content)


def _decode(response: httpx2.Response, content: bytes) -> str:
    try:
        return content.decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


def _text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)
