"""Two replicas with one PostgreSQL, behind a proxy that sends every request to the next replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    list_tool_names,
    plain_server,
    serve_app,
    wait_until,
)
from tests.support.postgres import PostgresServer
from tests.support.round_robin import RoundRobinProxy, round_robin
from toolcrib.config.settings import AccessProfile, ApiKey, AuthConfig, GatewayConfig
from toolcrib.gateway.app import build_http_app
from toolcrib.hub.hub import Hub
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])
SERVERS = (
    plain_server("old", ["ask", "echo", "pid", "touch", "hang", "cancelled", "log"], resources=["memo://old"]),
    plain_server("new", ["ask", "echo"], STATELESS),
    plain_server("single", ["ask", "echo", "pid"], prompts=["greet"], given={"replicas": "one"}),
)
CONFIG = build_config(
    *SERVERS,
    profiles=[AccessProfile("few", calls_per_minute=6, servers=("old",)), AccessProfile("asked", ask="destructive")],
    max_tools_limit=3,
    mode="dynamic",
)


@dataclass
class Replicas:
    """The running replicas and the proxy in front of them."""

    proxy: RoundRobinProxy
    hubs: list[Hub]
    urls: list[str]

    def connect(self, revision: str, path: str = "/mcp", **options: Any) -> Client:
        return Client(f"{self.proxy.url}{path}", mode=revision, cache=None, **options)


@asynccontextmanager
async def run_replicas(url: str, config: GatewayConfig = CONFIG, number: int = 2) -> AsyncIterator[Replicas]:
    config = replace(config, store=url)
    async with AsyncExitStack() as stack:
        hubs, urls = [], []
        for _ in range(number):
            hub = Hub(config, open_store(url), {"lexical": LexicalRanker()})
            stack.callback(hub.close)
            hubs.append(hub)
            urls.append(await stack.enter_async_context(serve_app(build_http_app(hub))))
        proxy = await stack.enter_async_context(round_robin(urls))
        async with httpx2.AsyncClient() as http:
            for each in urls:
                with anyio.fail_after(60):
                    while (await http.get(f"{each}/ready")).status_code != 200:
                        await anyio.sleep(0.05)
        yield Replicas(proxy, hubs, urls)


@pytest.fixture(scope="module")
async def replicas(postgres_server: PostgresServer) -> AsyncIterator[Replicas]:
    async with run_replicas(postgres_server.create_database()) as running:
        yield running


def count_requests(replicas: Replicas) -> Callable[[], Counter[str]]:
    before = Counter(replicas.proxy.counts)
    return lambda: Counter(replicas.proxy.counts) - before


@BOTH_REVISIONS
async def test_a_session_is_served_by_every_replica(replicas: Replicas, revision: str) -> None:
    served = count_requests(replicas)
    async with replicas.connect(revision) as connected:
        for number in range(6):
            assert f"text {number}" in await call_text(connected, "old___echo", {"text": f"text {number}"})
    assert len(served()) == 2


async def test_what_a_search_revealed_is_listed_by_every_replica(replicas: Replicas) -> None:
    async with replicas.connect("legacy") as connected:
        before = await list_tool_names(connected)
        await connected.call_tool("search_available_tools", {"query": "hang"})
        lists = [await list_tool_names(connected) for _ in range(4)]
    assert lists == [lists[0]] * 4
    assert lists[0] != before
    assert "old___hang" in lists[0]


async def test_a_log_level_holds_on_every_replica(replicas: Replicas) -> None:
    logged: list[str] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.level)

    async with replicas.connect("legacy", logging_callback=on_log) as connected:
        await connected.set_logging_level("error")
        with anyio.fail_after(30):
            # The other replica learns of the level within moments.
            while logged != ["error"] * 4:
                logged.clear()
                for number in range(4):
                    # The server logs a message for debugging and an error.
                    await connected.call_tool("old___log", {})
                    await wait_until(partial(lambda count: logged.count("error") > count, number))


@pytest.mark.parametrize("tool", ["old___ask", "new___ask", "single___ask"])
@BOTH_REVISIONS
async def test_an_answer_reaches_the_replica_that_asked(replicas: Replicas, revision: str, tool: str) -> None:
    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"which": params.message})

    form = {"mode": "form", "message": "Which one?", "requestedSchema": {"type": "object", "properties": {}}}
    served = count_requests(replicas)
    async with replicas.connect(revision, elicitation_callback=elicit) as connected:
        for _ in range(3):
            arguments = {"method": "elicitation/create", "params": form}
            assert "Which one?" in await call_text(connected, tool, arguments)
    assert len(served()) == 2


async def test_an_approval_counts_on_every_replica(replicas: Replicas) -> None:
    questions: list[str] = []

    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={})

    async with replicas.connect(STATELESS, "/mcp/p/asked", elicitation_callback=elicit) as connected:
        for number in range(3):
            assert "x" in await call_text(connected, "old___echo", {"text": "x"})
            assert len(questions) == number + 1


async def test_a_cancellation_reaches_the_replica_that_runs_the_call(replicas: Replicas) -> None:
    async with replicas.connect("legacy") as connected:
        with anyio.move_on_after(0.5):
            await connected.call_tool("old___hang", {})
    cancelled: list[str] = []
    with anyio.fail_after(30):
        while not any(text != "[]" for text in cancelled):
            # Each replica has its own instance of the server.
            for url in replicas.urls:
                async with Client(f"{url}/mcp", mode=STATELESS, cache=None) as connected:
                    cancelled.append(await call_text(connected, "old___cancelled"))


async def test_a_changed_resource_is_reported_on_the_stream_of_another_replica(replicas: Replicas) -> None:
    updated: list[str] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))

    async with replicas.connect("legacy", message_handler=on_message) as connected:
        await connected.list_resources()
        await connected.list_resources()
        await connected.subscribe_resource("memo://old")
        with anyio.fail_after(30):
            while not updated:
                # Each replica has its own instance of the server, and the stream is on one of them.
                await connected.call_tool("old___touch", {"uri": "memo://old"})
                await anyio.sleep(0.05)
    assert set(updated) == {"memo://old"}


async def test_a_closed_session_is_closed_on_every_replica(replicas: Replicas) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        opened = await http.post(f"{replicas.urls[0]}/mcp", json=hello)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for url in replicas.urls:
            assert (await http.post(f"{url}/mcp", json=asked, headers=session)).status_code == 200
        assert (await http.delete(f"{replicas.urls[1]}/mcp", headers=session)).status_code == 200
        for url in replicas.urls:
            with anyio.fail_after(30):
                while (await http.post(f"{url}/mcp", json=asked, headers=session)).status_code != 404:
                    await anyio.sleep(0.05)


async def test_a_server_of_one_replica_runs_once(replicas: Replicas) -> None:
    single, each = set(), set()
    for url in replicas.urls:
        async with Client(f"{url}/mcp", mode=STATELESS, cache=None) as connected:
            single.add(await call_text(connected, "single___pid"))
            each.add(await call_text(connected, "old___pid"))
            assert [prompt.name for prompt in (await connected.list_prompts()).prompts] == ["single___greet"]
    assert (len(single), len(each)) == (1, 2)


async def test_a_quota_is_shared(replicas: Replicas) -> None:
    async with replicas.connect(STATELESS, "/mcp/p/few") as connected:
        with pytest.raises(MCPError, match="callsPerMinute"):
            # Twice the quota would be possible if each replica counted for itself. A new minute adds one quota.
            for _ in range(19):
                await connected.call_tool("old___echo", {"text": "x"})
                await anyio.sleep(0.3)


KEYS = {"one": "1" * 20, "two": "2" * 20}
KEYED_CONFIG = replace(
    build_config(plain_server("old", ["echo"])),
    auth=AuthConfig(tuple(ApiKey.from_secret(secret, name=name) for name, secret in KEYS.items())),
)


class RawClient:
    """A client that chooses the replica and the session of each request."""

    def __init__(self, http: httpx2.AsyncClient, key: str = "one") -> None:
        self._http = http
        self._ids = count(2)
        self._headers = {"authorization": f"Bearer {KEYS[key]}", "accept": "application/json, text/event-stream"}

    async def open_session(self, url: str) -> str:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        opened = await self._http.post(f"{url}/mcp", json=hello, headers=self._headers)
        return opened.headers["mcp-session-id"]

    async def send(self, url: str, session: str, **message: Any) -> httpx2.Response:
        headers = {**self._headers, "mcp-session-id": session}
        return await self._http.post(f"{url}/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)

    async def call(self, url: str, session: str) -> httpx2.Response:
        params = {"name": "old___echo", "arguments": {"text": "heard"}}
        return await self.send(url, session, id=next(self._ids), method="tools/call", params=params)

    async def delete(self, url: str, session: str) -> int:
        headers = {**self._headers, "mcp-session-id": session}
        return (await self._http.delete(f"{url}/mcp", headers=headers)).status_code

    async def wait_for_messages(self, sender: str, receivers: list[str]) -> None:
        """Wait until other replicas have received all messages so far: they arrive in order."""
        created = await self._http.post(f"{sender}/api/keys", json={"name": "last"}, headers=self._headers)
        headers = {"authorization": f"Bearer {created.json()['key']}"}
        with anyio.fail_after(30):
            for url in receivers:
                while (await self._http.get(f"{url}/api/servers", headers=headers)).status_code != 200:
                    await anyio.sleep(0.02)


async def test_only_the_key_that_opened_a_session_can_use_it_on_another_replica(postgres_url: str) -> None:
    async with run_replicas(postgres_url, KEYED_CONFIG) as running, httpx2.AsyncClient(timeout=30) as http:
        session = await RawClient(http).open_session(running.urls[0])
        assert (await RawClient(http, "two").call(running.urls[1], session)).status_code == 404
        assert (await RawClient(http).call(running.urls[1], session)).status_code == 200


async def test_a_response_is_complete_if_another_replica_ends_the_session_meanwhile(postgres_url: str) -> None:
    statuses: set[int] = set()
    async with run_replicas(postgres_url, KEYED_CONFIG) as running, httpx2.AsyncClient(timeout=30) as http:
        client, (here, there) = RawClient(http), running.urls

        async def call_until_ended(session: str) -> None:
            status = 0
            while status != 404:
                status = (await client.call(there, session)).status_code
                statuses.add(status)

        for _ in range(15):
            session = await client.open_session(here)
            await client.call(there, session)
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):
                        tasks.start_soon(call_until_ended, session)
                    await client.delete(here, session)
    assert statuses == {200, 404}


async def test_sessions_of_other_replicas_are_served_while_postgresql_is_away(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    async with run_replicas(url, KEYED_CONFIG) as running, httpx2.AsyncClient(timeout=30) as http:
        client, (here, there) = RawClient(http), running.urls
        session, ended, other = [await client.open_session(here) for _ in range(3)]
        assert await client.delete(here, ended) == 200
        async with run_replicas(url, KEYED_CONFIG, number=1) as later:
            await client.wait_for_messages(here, [there, *later.urls])
            await anyio.to_thread.run_sync(postgres_server.stop)
            try:
                for replica in (there, *later.urls):
                    assert "heard" in (await client.call(replica, session)).text
                    assert (await RawClient(http, "two").call(replica, other)).status_code == 404
                assert (await client.call(there, ended)).status_code == 404
                # A cancellation is handled here, and an answer for another replica has to wait.
                cancellation = {"method": "notifications/cancelled", "params": {"requestId": 9}}
                assert (await client.send(there, session, **cancellation)).status_code == 202
                assert (await client.send(there, session, id="other-1", result={})).status_code == 503
                # Only this replica knows a session from now on, and only this one knows of its end.
                late = await client.open_session(here)
                assert (await client.call(here, late)).status_code == 200
                assert (await client.call(there, late)).status_code == 503
                assert await client.delete(there, other) == 200
                assert (await client.call(there, other)).status_code == 404
            finally:
                await anyio.to_thread.run_sync(postgres_server.start)
            with anyio.fail_after(60):
                while (await client.call(there, late)).status_code != 200:
                    await anyio.sleep(0.05)
                while (await client.call(here, other)).status_code != 404:
                    await anyio.sleep(0.05)
            for replica in (here, there, *later.urls):
                assert (await client.call(replica, ended)).status_code == 404
                assert (await client.call(replica, other)).status_code == 404
