"""A server of the official SDK behind the gateway, over real HTTP and SSE, in both protocol revisions."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    serve_app,
)
from toolcrib.config.server_settings import ServerConfig as Configured
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream import connection as links
from toolcrib.gateway.mcp.upstream import supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]
BOTH = pytest.mark.parametrize("era", ["legacy", STATELESS])


class OfficialServer:
    """A server built with the SDK that announces changes in both protocol revisions."""

    def __init__(self) -> None:
        self.tools = ["greet", "ask", "region"]
        self.headers: list[dict[str, str]] = []
        self.sessions: list[Any] = []
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] = _AnnouncingServer(
            "official",
            version="1",
            instructions="Greets people politely.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        self.sessions.append(ctx.session)
        schema = {"type": "object", "properties": {"who": {"type": "string"}}}
        regional: dict[str, Any] = {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }
        schemas = {"region": regional}
        listed = [
            types.Tool(name=name, description=f"To {name}.", input_schema=schemas.get(name, schema))
            for name in self.tools
        ]
        return types.ListToolsResult(tools=listed, ttl_ms=0, cache_scope="private")

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        memo = types.Resource(uri="memo://one", name="one")
        return types.ListResourcesResult(resources=[memo], ttl_ms=0, cache_scope="private")

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        self.headers.append(dict(ctx.request.headers) if ctx.request else {})
        if params.name == "ask" and ctx.protocol_version != STATELESS:
            answer = await ctx.session.elicit_form("Who?", {"type": "object", "properties": {}})
            return text_result(str(answer.action))
        who = (params.arguments or {}).get("who", "world")
        return text_result(f"{params.name} {who}")

    async def change(self) -> None:
        self.tools.append(f"tool{len(self.tools)}")
        await self.bus.publish(ToolsListChanged())
        for session in self.sessions:
            await session.send_tool_list_changed()


class _AnnouncingServer(Server[Any]):
    def create_initialization_options(self, *args: Any, **given: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


def text_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


@pytest.fixture(scope="module")
async def official() -> AsyncIterator[tuple[OfficialServer, McpRouter]]:
    """Run one server of the SDK, configured once for each protocol revision."""
    made = OfficialServer()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_app(made.server.streamable_http_app()))
        old = Configured("old", transport="http", url=f"{url}/mcp", protocol="legacy")
        new = Configured("new", transport="http", url=f"{url}/mcp", headers={"x-token": "secret"})
        gone = Configured("gone", transport="http", url="http://127.0.0.1:9/mcp")
        wrong = Configured("wrong", transport="http", url=f"{url}/nowhere")
        config = build_config(old, new, gone, wrong)
        yield made, await stack.enter_async_context(gateway(config))


@BOTH
async def test_http_server_in_both_revisions(official: tuple[OfficialServer, McpRouter], era: str) -> None:
    _, router = official
    assert router.pool.servers["old"].connection.protocol == "2025-11-25"  # type: ignore[union-attr]
    assert router.pool.servers["new"].connection.protocol == STATELESS  # type: ignore[union-attr]
    async with connect_client(router, era) as connected:
        assert {"old___greet", "new___greet"} <= set(await list_tool_names(connected))
        for server in ("old", "new"):
            assert await call_text(connected, f"{server}___greet", {"who": "Ann"}) == "greet Ann"


async def test_unreachable_url_is_reported_without_secrets(official: tuple[OfficialServer, McpRouter]) -> None:
    _, router = official
    trouble = router.pool.unreachable_servers()
    assert "could not be reached" in trouble["gone"]
    assert "404" in trouble["wrong"] or "Not Found" in trouble["wrong"]
    assert "secret" not in str(trouble)


async def test_configured_headers_and_header_arguments_are_sent(official: tuple[OfficialServer, McpRouter]) -> None:
    made, router = official
    async with connect_client(router) as connected:
        await call_text(connected, "new___region", {"region": "north"})
        assert made.headers[-1]["x-token"] == "secret"
        assert made.headers[-1]["mcp-param-region"] == "north"
        await call_text(connected, "old___region", {"region": "north"})
        assert "x-token" not in made.headers[-1]


@BOTH
async def test_http_server_requests_reach_clients_of_both_revisions(
    official: tuple[OfficialServer, McpRouter], era: str
) -> None:
    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={})

    _, router = official
    async with connect_client(router, era, elicitation_callback=elicit) as connected:
        assert await call_text(connected, "old___ask") == "accept"


async def test_list_changes_are_noticed_in_both_revisions(official: tuple[OfficialServer, McpRouter]) -> None:
    made, router = official
    async with connect_client(router) as connected:
        await made.change()
        new = made.tools[-1]
        with anyio.fail_after(20):
            while not {f"old___{new}", f"new___{new}"} <= set(await list_tool_names(connected)):
                await anyio.sleep(0.05)


async def test_stateless_client_subscribes_to_stateless_server(official: tuple[OfficialServer, McpRouter]) -> None:
    made, router = official
    async with connect_client(router) as connected:
        await connected.list_resources()
        async with connected.listen(resource_subscriptions=["memo://one", "memo://two"]) as changes:
            with anyio.move_on_after(20) as waited:
                async with anyio.create_task_group() as tasks:

                    async def touch() -> None:
                        while True:
                            await made.bus.publish(ResourceUpdated(uri="memo://two"))
                            await anyio.sleep(0.05)

                    tasks.start_soon(touch)
                    event: Any = await anext(changes)
                    tasks.cancel_scope.cancel()
            assert not waited.cancelled_caught
    assert str(event.uri) == "memo://two"


async def test_failing_http_server_is_reported_and_recovers() -> None:
    made = OfficialServer()
    app = made.server.streamable_http_app(stateless_http=True, json_response=True)
    down = False

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        if down and scope["type"] == "http":
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    async with serve_app(sometimes) as url:
        config = build_config(Configured("web", transport="http", url=f"{url}/mcp"))
        async with gateway(config) as router, connect_client(router) as connected:
            assert await call_text(connected, "web___greet") == "greet world"
            down = True
            result = await connected.call_tool("web___greet", {})
            assert result.is_error
            assert "web is not reachable" in part_text(result.content[0])
            down = False
            assert await call_text(connected, "web___greet") == "greet world"


async def test_restarted_http_server_gets_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    before, after = (OfficialServer().server.streamable_http_app() for _ in range(2))
    restarted = False

    async def one_after_the_other(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            async with before.router.lifespan_context(before), after.router.lifespan_context(after):
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await (after if restarted else before)(scope, receive, send)

    async with serve_app(one_after_the_other) as url:
        web = Configured("web", transport="http", url=f"{url}/mcp", protocol="legacy")
        async with gateway(build_config(web)) as router, connect_client(router) as connected:
            assert await call_text(connected, "web___greet") == "greet world"
            restarted = True
            assert (await connected.call_tool("web___greet", {})).is_error
            with anyio.fail_after(20):
                while (await connected.call_tool("web___greet", {})).is_error:
                    await anyio.sleep(0.05)


def sse_app(server: Server[Any]) -> Starlette:
    """Return an app with the SSE transport: a stream for responses, POST for requests."""
    transport = SseServerTransport("/messages/")

    async def listen(request: Request) -> Response:
        scope, receive, send = request.scope, request.receive, request._send
        async with transport.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    routes = [Route("/sse", listen), Mount("/messages/", app=transport.handle_post_message)]
    return Starlette(routes=routes)


@BOTH
async def test_sse_server(era: str) -> None:
    made = OfficialServer()
    async with serve_app(sse_app(made.server)) as url:
        old = Configured("old", transport="sse", url=f"{url}/sse", protocol="legacy")
        async with gateway(build_config(old)) as router, connect_client(router, era) as connected:
            assert await call_text(connected, "old___greet", {"who": "Bo"}) == "greet Bo"


async def test_sse_is_tried_where_streamable_http_is_rejected() -> None:
    async with serve_app(sse_app(OfficialServer().server)) as url:
        old = Configured("old", transport="http", url=f"{url}/sse")
        wrong = Configured("wrong", transport="http", url=f"{url}/nothing")
        async with gateway(build_config(old, wrong)) as router, connect_client(router) as connected:
            assert await call_text(connected, "old___greet", {"who": "Bo"}) == "greet Bo"
            assert "Not Found" in router.pool.unreachable_servers()["wrong"]


async def test_endless_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_LINE_BYTES", 1_000_000)
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    app = OfficialServer().server.streamable_http_app(stateless_http=True, json_response=True)
    cut_off = anyio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-name") != b"ask":
            await app(scope, receive, send)
            return

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            cut_off.set()

        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            while not cut_off.is_set():
                await send({"type": "http.response.body", "body": b"x" * 9999, "more_body": True})
                await anyio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async with serve_app(endless) as url:
        web = Configured("web", transport="http", url=f"{url}/mcp", call_seconds=5)
        async with gateway(build_config(web)) as router, connect_client(router) as connected:
            with anyio.fail_after(60):
                with suppress(MCPError):
                    assert (await connected.call_tool("web___ask", {})).is_error
                await cut_off.wait()
            with anyio.fail_after(20):
                while (await connected.call_tool("web___greet", {})).is_error:
                    await anyio.sleep(0.05)


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [("x" * 2_000_000, "has more than 100,000 bytes"), ("\\ud83d", "cannot be read: it is not valid JSON")],
    ids=["large", "half_emoji"],
)
async def test_unreadable_http_answer_fails_its_call_at_once(
    content_type: str, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINE_BYTES", 1_000_000)
    app = OfficialServer().server.streamable_http_app(stateless_http=True)

    async def answer_asks(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-name") != b"ask":
            await app(scope, receive, send)
            return
        id = json.loads((await receive())["body"])["id"]
        body = f'{{"jsonrpc": "2.0", "id": {id}, "result": {{"content": [{{"type": "text", "text": "{text}"}}]}}}}'
        body = body if content_type == "application/json" else f"data: {body}\n\n"
        await Response(body, media_type=content_type)(scope, receive, send)

    async with serve_app(answer_asks) as url:
        web = Configured("web", transport="http", url=f"{url}/mcp", max_result_bytes=100_000)
        async with gateway(build_config(web)) as router, connect_client(router) as connected:
            link = router.pool.servers["web"].connection
            result = await connected.call_tool("web___ask", {})
            assert result.is_error
            assert reason in part_text(result.content[0])
            assert await call_text(connected, "web___greet") == "greet world"
            assert router.pool.servers["web"].connection is link


@pytest.mark.parametrize(
    ("status", "content_type", "reason"),
    [
        (200, "text/html", "web sent an answer that cannot be read: it has the content type text/html; charset=utf-8"),
        (202, "text/plain", "web sent an answer that cannot be read: it has no content"),
        (
            307,
            "text/plain",
            "web sent an answer that cannot be read: it is a redirect; correct the `url` of the server",
        ),
        (200, "text/event-stream", "web sent an answer that cannot be read: it has no content"),
        (404, "text/plain", "web is not reachable: it answered with HTTP 404"),
        (429, "text/plain", "web is not reachable: it answered with HTTP 429"),
    ],
)
async def test_http_answer_that_is_not_mcp_fails_its_call_with_the_reason(
    status: int, content_type: str, reason: str
) -> None:
    app = OfficialServer().server.streamable_http_app(stateless_http=True)

    async def fail_asks(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-name") == b"ask":
            headers = {"location": "http://127.0.0.1:9/secret"} if status == 307 else None
            await Response("", status, headers, content_type)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with serve_app(fail_asks) as url:
        web = Configured("web", transport="http", url=f"{url}/mcp")
        async with gateway(build_config(web)) as router, connect_client(router) as connected:
            result = await connected.call_tool("web___ask", {})
            assert result.is_error
            assert part_text(result.content[0]) == reason
            assert await call_text(connected, "web___greet") == "greet world"


@pytest.mark.parametrize(
    ("content_type", "reason"),
    [("application/json", "it is not valid JSON"), ("text/event-stream", "it has no content")],
)
async def test_compressed_answer_is_not_expanded(content_type: str, reason: str) -> None:
    app = OfficialServer().server.streamable_http_app(stateless_http=True)
    asked: list[bytes] = []

    async def compress_asks(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-name") != b"ask":
            await app(scope, receive, send)
            return
        asked.append(headers[b"accept-encoding"])
        body = gzip.compress(b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}')
        await Response(body, headers={"content-encoding": "gzip"}, media_type=content_type)(scope, receive, send)

    async with serve_app(compress_asks) as url:
        web = Configured("web", transport="http", url=f"{url}/mcp")
        async with gateway(build_config(web)) as router, connect_client(router) as connected:
            result = await connected.call_tool("web___ask", {})
            assert result.is_error and reason in part_text(result.content[0])
            assert asked == [b"identity"]


async def test_answer_of_an_sse_server_is_repaired() -> None:
    made = OfficialServer()
    app = sse_app(made.server)

    async def break_answers(scope: Any, receive: Any, send: Any) -> None:
        async def send_broken(message: Any) -> None:
            if body := message.get("body"):
                message = {**message, "body": body.replace(b"greet Bo", rb"greet \ud83d")}
            await send(message)

        await app(scope, receive, send_broken)

    async with serve_app(break_answers) as url:
        old = Configured("old", transport="sse", url=f"{url}/sse", protocol="legacy")
        async with gateway(build_config(old)) as router, connect_client(router) as connected:
            assert await call_text(connected, "old___greet", {"who": "Bo"}) == "greet \ufffd"
