"""A search and the successful call of what it returned teach the gateway something."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from click.testing import CliRunner
from mcp import Client

from tests.gateway.mcp.harness import (
    MODERN,
    PROFILE,
    client,
    config_of,
    plain,
    served,
    settled,
)
from tests.gateway.serving import COMMAND, environment
from tests.support.gateway_process import free_port, started, wait_for
from toolcrib.cli.main import toolcrib
from toolcrib.config.settings import Auth, Config, Key, Profile
from toolcrib.gateway.app import http_app
from toolcrib.gateway.mcp.gateway import running
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.hub.feedback import Lessons
from toolcrib.hub.hub import Service
from toolcrib.search.engine import SearchEngine
from toolcrib.search.feedback.experience import Use
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.storage import open_store

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

QUERY = "diesel for nine stops"


def _tool(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "description": about, "inputSchema": {"type": "object"}}


TOOLS = [
    _tool("echo", "Diesel prices by the litre, for stations nearby."),
    _tool("ask_for_stops", "Stops of a bus line."),
    _tool("fail", "Which diesel is sold where."),
    _tool("pid", "The shortest tour."),
    *(_tool(f"other_{number}", f"Something else, number {number}.") for number in range(9)),
]
WORDS = plain("van", TOOLS)
FOUND = "van___echo"


def _service(config: Config) -> Service:
    store = open_store(config.store)
    lessons = Lessons(store.lessons, lambda: b"sixteen bytes or more")
    service = Service(config, store, lessons=lessons)
    # Words alone: the model takes its time, and has its own tests.
    service._engine = SearchEngine(service.engine.catalog, {"lexical": Lexical()})
    return service


@asynccontextmanager
async def _gateway(config: Config) -> AsyncIterator[Front]:
    with closing(_service(config)) as service:
        async with running(service, lambda ctx: PROFILE.get()) as front:
            await settled(front)
            yield front


def _score(front: Front, profile: str | None = None, name: str = FOUND) -> float:
    hits = front.service.view(profile).engine.search(QUERY, limit=20)
    return max((hit.score for hit in hits if hit.tool.id == name), default=0.0)


async def _learned(front: Front) -> dict[str, int]:
    await anyio.to_thread.run_sync(front.service.flush)
    return front.service.learned()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("mode", "search", "era"),
    [
        ("search", "search_tools", MODERN),
        ("dynamic", "search_available_tools", "legacy"),
        ("direct", "search_tools", "legacy"),
    ],
)
async def test_a_tool_that_was_found_and_then_served_rises(
    mode: str, search: str, era: str
) -> None:
    config = config_of(WORDS, mode=mode, max_tools_limit=5)
    async with _gateway(config) as front, client(front, era) as connected:
        cold = _score(front)
        assert cold > 0
        await connected.call_tool(FOUND, {"text": "called, but never searched for"})
        assert await _learned(front) == {"tools": 0, "words": 0}
        await connected.call_tool(search, {"query": QUERY})
        result = await connected.call_tool(FOUND, {"text": "hello"})
        assert not result.is_error
        assert (await _learned(front))["tools"] == 1
        assert _score(front) > cold


@pytest.mark.anyio
async def test_a_call_through_the_tool_that_calls_counts_as_well() -> None:
    config = config_of(WORDS, mode="search")
    async with _gateway(config) as front, client(front) as connected:
        await connected.call_tool("search_tools", {"query": QUERY})
        given = {"name": FOUND, "arguments": {"text": "hello"}}
        await connected.call_tool("call_tool", given)
        assert (await _learned(front))["tools"] == 1


@pytest.mark.anyio
async def test_a_call_that_fails_teaches_nothing() -> None:
    config = config_of(WORDS, plain("gone", ["die"]), mode="search")
    async with _gateway(config) as front, client(front) as connected:
        for query, name in ((QUERY, "van___fail"), ("end the server", "gone___die")):
            told = await connected.call_tool("search_tools", {"query": query})
            assert name in told.model_dump_json()
            assert (await connected.call_tool(name, {})).is_error
        assert await _learned(front) == {"tools": 0, "words": 0}


@pytest.mark.anyio
async def test_another_client_s_search_is_not_this_one_s() -> None:
    config = config_of(WORDS, mode="search")
    async with (
        _gateway(config) as front,
        client(front, "legacy") as one,
        client(front, "legacy") as other,
    ):
        await one.call_tool("search_tools", {"query": QUERY})
        await other.call_tool(FOUND, {"text": "hello"})
        assert await _learned(front) == {"tools": 0, "words": 0}
        await one.call_tool(FOUND, {"text": "hello"})
        assert (await _learned(front))["tools"] == 1


@pytest.mark.anyio
async def test_what_one_profile_learned_changes_no_byte_of_another_s_answer() -> None:
    profiles = (Profile("drivers"), Profile("guests", tools=("van___other_*", "van___ask*")))
    config = config_of(WORDS, profiles=profiles, mode="search")
    async with _gateway(config) as front:
        PROFILE.set("guests")
        async with client(front) as guest:
            before = await guest.call_tool("search_tools", {"query": QUERY, "limit": 20})
        PROFILE.set("drivers")
        async with client(front) as driver:
            for _ in range(3):
                await driver.call_tool("search_tools", {"query": QUERY})
                await driver.call_tool(FOUND, {"text": "hello"})
        assert (await _learned(front))["tools"] == 1
        assert front.service.learned("guests") == {"tools": 0, "words": 0}
        PROFILE.set("guests")
        async with client(front) as guest:
            after = await guest.call_tool("search_tools", {"query": QUERY, "limit": 20})
        assert after.model_dump_json() == before.model_dump_json()
        PROFILE.set(None)


@pytest.mark.anyio
async def test_a_thousand_hostile_successes_hide_no_tool() -> None:
    config = config_of(WORDS, mode="search")
    async with _gateway(config) as front, client(front, "legacy") as connected:
        asked = {"query": "stops of a bus line", "limit": 20}
        cold = await connected.call_tool("search_tools", asked)
        best, *_ = _named(cold)
        others = set(_named(cold))
        view = front.service.view()
        entry = view.entries["van___pid"]
        for _ in range(1000):
            # As a client would that searches for one thing and calls another, in new sessions.
            front.service.note_use(None, "", Use("stops of a bus line", entry.name))
        assert (await _learned(front))["words"] > 0
        hot = _named(await connected.call_tool("search_tools", asked))
        assert hot[0] == best
        assert others <= set(hot)


@pytest.mark.anyio
async def test_who_called_is_told_by_the_key_and_no_key_says_more_than_its_part() -> None:
    keys = (Key.of("first key", name="ann"), Key.of("second key", name="bob"))
    config = Config({"van": WORDS}, store="sqlite://", auth=Auth(keys))
    service = _service(config)
    async with served(http_app(service)) as address, httpx.AsyncClient() as http:

        async def call(key: str, name: str, **arguments: Any) -> Any:
            params = {"name": name, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            headers = {"authorization": f"Bearer {key}", "accept": "application/json"}
            answer = await http.post(f"{address}/mcp", json=message, headers=headers, timeout=60)
            return answer.json()["result"]

        with anyio.fail_after(60):
            while (await call("first key", FOUND, text="up?")).get("isError"):
                await anyio.sleep(0.05)
        await call("first key", "search_tools", query=QUERY)
        await call("second key", FOUND, text="hello")
        await anyio.to_thread.run_sync(service.flush)
        assert service.learned()["tools"] == 0
        for key in ("first key", "second key"):
            await call(key, "search_tools", query=QUERY)
            await call(key, FOUND, text="hello")
        await anyio.to_thread.run_sync(service.flush)
        assert service.lessons is not None
        circle = service.lessons.known("profile", "")
        assert circle is not None
        assert len(circle.voices) == 2
        headers = {"authorization": "Bearer first key"}
        stats = (await http.get(f"{address}/api/stats", headers=headers)).json()
        assert stats["learned"] == service.learned()
        asked = {"query": QUERY, "reasons": "true"}
        answer = await http.get(f"{address}/api/search", params=asked, headers=headers)
        hits = {hit["tool"]["name"]: hit["reasons"] for hit in answer.json()["hits"]}
        assert "use" in {reason["field"] for reason in hits[FOUND]}
    service.close()


@pytest.mark.anyio
async def test_switched_off_nothing_is_followed_or_kept() -> None:
    config = config_of(WORDS, mode="search", learn=False)
    async with _gateway(config) as front, client(front) as connected:
        await connected.call_tool("search_tools", {"query": QUERY})
        await connected.call_tool(FOUND, {"text": "hello"})
        await anyio.to_thread.run_sync(front.service.flush)
        assert front.service.store.lessons.tools() == {}
        assert front.service.lessons is not None
        assert front.service.lessons.told() == {"tools": 0, "words": 0}


def test_through_the_real_gateway_it_survives_a_kill_and_is_forgotten_when_told(
    tmp_path: Path,
) -> None:
    """`toolcrib serve` with the demo server, the official client, a kill, and the command line."""
    entry = {
        "command": sys.executable,
        "args": ["-m", "toolcrib.demo"],
        "env": {"PYTHONPATH": environment()["PYTHONPATH"]},
        "connectSeconds": 300,
    }
    document = {"mcpServers": {"demo": entry}, "toolSearch": {"mode": "search"}}
    path = tmp_path / "toolcrib.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    wanted = "demo___split_bill"

    async def use(address: str) -> None:
        async with Client(f"{address}/mcp", mode="legacy", cache=None) as connected:
            asked = {"query": "how much each of us owes for the pizza", "limit": 20}
            found = await connected.call_tool("search_tools", asked)
            assert wanted in _named(found)
            given = {"total": 60, "people": 3, "tip_percent": 0}
            assert not (await connected.call_tool(wanted, given)).is_error

    port, log = free_port(), tmp_path / "serve.log"
    address = f"http://127.0.0.1:{port}"
    command = [*COMMAND, "serve", "--config", str(path), "--port", str(port)]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env=environment(), cwd=tmp_path
        )
        try:
            wait_for(lambda: started(address), process, log)
            anyio.run(use, address)
            wait_for(lambda: _learned_by(address), process, log)
            learned = _learned_by(address)
            status = CliRunner().invoke(toolcrib, ["status", "--url", address])
            assert f"Learned from use: {learned} words for 1 tool." in status.output
        finally:
            process.kill()
            process.wait()
    listed = CliRunner().invoke(toolcrib, ["forget", "--config", str(path), "--json"])
    assert json.loads(listed.output)["known"] == {wanted: learned}
    gone = CliRunner().invoke(toolcrib, ["forget", "--config", str(path), wanted])
    assert gone.output == f"What {learned} words said of 1 tool is forgotten.\n"
    again = CliRunner().invoke(toolcrib, ["forget", "--config", str(path)])
    assert again.output == "Nothing was learned.\n"


def _named(result: Any) -> list[str]:
    return [tool["name"] for tool in result.structured_content["tools"]]


def _learned_by(address: str) -> int:
    try:
        with urllib.request.urlopen(f"{address}/api/stats", timeout=60) as answer:
            return int(json.load(answer)["learned"]["words"])
    except OSError:
        return 0
