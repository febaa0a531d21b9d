from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    plain_server,
    wait_until,
    with_search_settings,
)
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio

ZOO = plain_server("zoo", ["lion", "bear", "wolf", "echo"])
SEA = plain_server("sea", ["whale", "shark", "squid"], STATELESS)
CONFIG = build_config(ZOO, SEA, mode="dynamic", max_tools_limit=3)
SEARCH = "search_available_tools"


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(CONFIG) as made:
        yield made


@pytest.fixture
def configured_router(router: McpRouter, request: pytest.FixtureRequest) -> McpRouter:
    """Return the same gateway with other settings; its servers keep running."""
    router.hub.reconfigure(with_search_settings(CONFIG, **getattr(request, "param", {})))
    return router


class EventLog:
    """The notifications and results of a client in the order of their arrival."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __call__(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method:
            self.events.append(method)


async def test_list_has_first_tools_in_selection_order_and_search_tool_last(configured_router: McpRouter) -> None:
    async with connect_client(configured_router, "legacy") as connected:
        listed = (await connected.list_tools()).tools
    assert [tool.name for tool in listed] == ["zoo___bear", "zoo___echo", "zoo___lion", SEARCH]
    assert "Search through 4 additional available tools" in (listed[-1].description or "")
    assert "zoo (4), sea (3)" in (listed[-1].description or "")


@pytest.mark.parametrize(
    ("configured_router", "listed"),
    [
        ({"tool_selection_order": ("alphabetical",)}, ["sea___shark", "sea___squid", "sea___whale"]),
        ({"always_expose": ("sea___whale",)}, ["zoo___bear", "zoo___echo", "sea___whale"]),
        ({"always_expose": ("sea___*",), "max_tools_limit": 2}, None),
    ],
    indirect=["configured_router"],
)
async def test_selection_order_and_always_expose(configured_router: McpRouter, listed: list[str] | None) -> None:
    async with connect_client(configured_router, "legacy") as connected:
        found = (await list_tool_names(connected))[:-1]
    if listed is None:
        # Tools in alwaysExpose are listed regardless of the limit.
        assert sorted(found) == ["sea___shark", "sea___squid", "sea___whale"]
    else:
        assert sorted(found) == sorted(listed)


@pytest.mark.parametrize("configured_router", [{"tool_selection_order": ("random",)}], indirect=True)
async def test_random_order_is_equal_for_all_clients(configured_router: McpRouter) -> None:
    async with connect_client(configured_router, "legacy") as one, connect_client(configured_router, "legacy") as other:
        assert await list_tool_names(one) == await list_tool_names(other)


async def test_search_replaces_only_the_list_of_its_session(configured_router: McpRouter) -> None:
    events_log, overheard = EventLog(), EventLog()
    async with (
        connect_client(configured_router, "legacy", message_handler=events_log) as one,
        connect_client(configured_router, "legacy", message_handler=overheard) as other,
    ):
        before = await list_tool_names(other)
        text = await call_text(one, SEARCH, {"query": "whale"})
        events_log.events.append("result")
        assert text.startswith("Found 1 matching tools:\n\n1. sea___whale - Do what whale does.")
        assert events_log.events == ["notifications/tools/list_changed", "result"]
        listed = (await one.list_tools()).tools
        assert [tool.name for tool in listed] == ["sea___whale", SEARCH]
        assert "Search through 6 additional" in (listed[-1].description or "")
        assert await list_tool_names(other) == before
        assert overheard.events == []


async def test_search_without_results_keeps_the_list(configured_router: McpRouter) -> None:
    events_log = EventLog()
    async with connect_client(configured_router, "legacy", message_handler=events_log) as connected:
        before = await list_tool_names(connected)
        for query in ("zqxj", ""):
            text = await call_text(connected, SEARCH, {"query": query})
            assert text == f"No tools found matching '{query}'. Try a different search term."
        assert await list_tool_names(connected) == before
    assert events_log.events == ["notifications/tools/list_changed"] * 2


@pytest.mark.parametrize("configured_router", [{"on_search": "extend"}], indirect=True)
async def test_search_can_extend_the_list(configured_router: McpRouter) -> None:
    async with connect_client(configured_router, "legacy") as connected:
        await call_text(connected, SEARCH, {"query": "whale"})
        await call_text(connected, SEARCH, {"query": "squid"})
        listed = await list_tool_names(connected)
    assert listed == ["zoo___bear", "zoo___echo", "zoo___lion", "sea___whale", "sea___squid", SEARCH]


async def test_hidden_tools_can_be_called_by_name(configured_router: McpRouter) -> None:
    async with connect_client(configured_router, "legacy") as connected:
        await call_text(connected, SEARCH, {"query": "whale"})
        assert await call_text(connected, "zoo___echo", {"text": "still here"}) == "still here"


async def test_stateless_client_sees_a_constant_list(configured_router: McpRouter) -> None:
    async with connect_client(configured_router) as connected:
        before = await list_tool_names(connected)
        await call_text(connected, SEARCH, {"query": "whale"})
        assert await list_tool_names(connected) == before == ["search_tools", "describe_tool", "call_tool"]


@pytest.mark.parametrize("configured_router", [{"mode": "auto"}], indirect=True)
@pytest.mark.parametrize(("name", "first"), [("claude-code", "search_tools"), ("somebody", "zoo___bear")])
async def test_auto_mode_knows_clients_that_read_the_list_once(
    configured_router: McpRouter, name: str, first: str
) -> None:
    info = Implementation(name=name, version="1")
    async with connect_client(configured_router, "legacy", client_info=info) as connected:
        assert (await list_tool_names(connected))[0] == first


@pytest.mark.parametrize("configured_router", [{"max_tools_limit": 0}, {"max_tools_limit": 7}], indirect=True)
async def test_all_tools_are_listed_within_or_without_the_limit(configured_router: McpRouter) -> None:
    async with connect_client(configured_router, "legacy") as connected:
        listed = await list_tool_names(connected)
    assert len(listed) == 7
    assert SEARCH not in listed


@pytest.mark.parametrize("configured_router", [{"debug": True}], indirect=True)
async def test_debug_logs_the_ranking(configured_router: McpRouter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolcrib")
    async with connect_client(configured_router, "legacy") as connected:
        await call_text(connected, SEARCH, {"query": "whale"})
    lines = [record.getMessage() for record in caplog.records]
    first = lines.index('🔍 Tool search query: "whale"')
    assert lines[first + 1] == "   Index size: 7 tools"
    assert lines[first + 3] == "   Matches after threshold: 1"


async def test_tool_change_is_sent_to_all_clients(configured_router: McpRouter) -> None:
    events_log = EventLog()
    async with (
        connect_client(configured_router, "legacy", message_handler=events_log),
        connect_client(configured_router) as modern,
    ):
        async with modern.listen(tools_list_changed=True) as changes:
            await configured_router.notify_tools_changed()
            await anext(changes)
        await wait_until(lambda: events_log.events == ["notifications/tools/list_changed"])


async def test_lists_of_two_hundred_sessions_are_separate(configured_router: McpRouter) -> None:
    animals = ["lion", "bear", "wolf", "whale", "shark", "squid"]
    found: dict[int, list[str]] = {}
    said: dict[int, str] = {}
    everybody = anyio.Event()

    async def visit(number: int) -> None:
        async with connect_client(configured_router, "legacy") as connected:
            await call_text(connected, SEARCH, {"query": animals[number % 6]})
            said[number] = await call_text(connected, "zoo___echo", {"text": f"I am {number}"})
            if len(said) == 200:
                assert configured_router.client_count == 200
                everybody.set()
            await everybody.wait()
            found[number] = await list_tool_names(connected)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(visit, number)
    for number in range(200):
        assert said[number] == f"I am {number}"
        assert [name.partition("___")[2] for name in found[number][:-1]] == [animals[number % 6]]
    await wait_until(lambda: configured_router.client_count == 0)
