from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    MODERN,
    client,
    config_of,
    gateway,
    names,
    plain,
    told,
    until,
    with_search,
)
from toolcrib.gateway.mcp.server.router import Front

pytestmark = pytest.mark.anyio

ZOO = plain("zoo", ["lion", "bear", "wolf", "echo"])
SEA = plain("sea", ["whale", "shark", "squid"], MODERN)
CONFIG = config_of(ZOO, SEA, mode="dynamic", max_tools_limit=3)
SEARCH = "search_available_tools"


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[Front]:
    async with gateway(CONFIG) as made:
        yield made


@pytest.fixture
def shown(front: Front, request: pytest.FixtureRequest) -> Front:
    """The same gateway with other settings: its servers stay up."""
    front.service.config = with_search(CONFIG, **getattr(request, "param", {}))
    front.service._views.clear()
    return front


class Heard:
    """What a client was told, and what it got, in the order in which it came."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __call__(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method:
            self.events.append(method)


async def test_the_first_in_selection_order_are_shown_and_the_search_tool_last(
    shown: Front,
) -> None:
    async with client(shown, "legacy") as connected:
        listed = (await connected.list_tools()).tools
    assert [tool.name for tool in listed] == ["zoo___bear", "zoo___echo", "zoo___lion", SEARCH]
    assert "Search through 4 additional available tools" in (listed[-1].description or "")
    assert "zoo (4), sea (3)" in (listed[-1].description or "")


@pytest.mark.parametrize(
    ("shown", "listed"),
    [
        (
            {"tool_selection_order": ("alphabetical",)},
            ["sea___shark", "sea___squid", "sea___whale"],
        ),
        ({"always_expose": ("sea___whale",)}, ["zoo___bear", "zoo___echo", "sea___whale"]),
        ({"always_expose": ("sea___*",), "max_tools_limit": 2}, None),
    ],
    indirect=["shown"],
)
async def test_the_order_and_the_pins_are_configured(
    shown: Front, listed: list[str] | None
) -> None:
    async with client(shown, "legacy") as connected:
        found = (await names(connected))[:-1]
    if listed is None:
        # What is pinned is shown, whatever the limit says.
        assert sorted(found) == ["sea___shark", "sea___squid", "sea___whale"]
    else:
        assert sorted(found) == sorted(listed)


@pytest.mark.parametrize("shown", [{"tool_selection_order": ("random",)}], indirect=True)
async def test_chance_is_the_same_for_everybody(shown: Front) -> None:
    async with client(shown, "legacy") as one, client(shown, "legacy") as other:
        assert await names(one) == await names(other)


async def test_a_search_replaces_the_list_of_its_session_alone(shown: Front) -> None:
    heard, overheard = Heard(), Heard()
    async with (
        client(shown, "legacy", message_handler=heard) as one,
        client(shown, "legacy", message_handler=overheard) as other,
    ):
        before = await names(other)
        text = await told(one, SEARCH, {"query": "whale"})
        heard.events.append("result")
        assert text.startswith("Found 1 matching tools:\n\n1. sea___whale - Do what whale does.")
        assert heard.events == ["notifications/tools/list_changed", "result"]
        listed = (await one.list_tools()).tools
        assert [tool.name for tool in listed] == ["sea___whale", SEARCH]
        assert "Search through 6 additional" in (listed[-1].description or "")
        assert await names(other) == before
        assert overheard.events == []


async def test_a_search_without_finds_changes_nothing_but_tells(shown: Front) -> None:
    heard = Heard()
    async with client(shown, "legacy", message_handler=heard) as connected:
        before = await names(connected)
        for query in ("zqxj", ""):
            text = await told(connected, SEARCH, {"query": query})
            assert text == f"No tools found matching '{query}'. Try a different search term."
        assert await names(connected) == before
    assert heard.events == ["notifications/tools/list_changed"] * 2


@pytest.mark.parametrize("shown", [{"on_search": "extend"}], indirect=True)
async def test_a_search_can_extend_the_list(shown: Front) -> None:
    async with client(shown, "legacy") as connected:
        await told(connected, SEARCH, {"query": "whale"})
        await told(connected, SEARCH, {"query": "squid"})
        listed = await names(connected)
    assert listed == [
        "zoo___bear",
        "zoo___echo",
        "zoo___lion",
        "sea___whale",
        "sea___squid",
        SEARCH,
    ]


async def test_hidden_tools_can_be_called_by_name(shown: Front) -> None:
    async with client(shown, "legacy") as connected:
        await told(connected, SEARCH, {"query": "whale"})
        assert await told(connected, "zoo___echo", {"text": "still here"}) == "still here"


async def test_a_client_without_a_handshake_sees_a_list_that_never_changes(shown: Front) -> None:
    async with client(shown) as connected:
        before = await names(connected)
        await told(connected, SEARCH, {"query": "whale"})
        assert await names(connected) == before == ["search_tools", "describe_tool", "call_tool"]


@pytest.mark.parametrize("shown", [{"mode": "auto"}], indirect=True)
@pytest.mark.parametrize(
    ("name", "first"), [("claude-code", "search_tools"), ("somebody", "zoo___bear")]
)
async def test_auto_knows_the_clients_that_read_the_list_only_once(
    shown: Front, name: str, first: str
) -> None:
    info = Implementation(name=name, version="1")
    async with client(shown, "legacy", client_info=info) as connected:
        assert (await names(connected))[0] == first


@pytest.mark.parametrize("shown", [{"max_tools_limit": 0}, {"max_tools_limit": 7}], indirect=True)
async def test_within_the_limit_and_without_one_all_is_shown(shown: Front) -> None:
    async with client(shown, "legacy") as connected:
        listed = await names(connected)
    assert len(listed) == 7
    assert SEARCH not in listed


@pytest.mark.parametrize("shown", [{"debug": True}], indirect=True)
async def test_debug_logs_how_a_search_came_about(
    shown: Front, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolcrib")
    async with client(shown, "legacy") as connected:
        await told(connected, SEARCH, {"query": "whale"})
    lines = [record.getMessage() for record in caplog.records]
    assert 'Tool search query: "whale"' in lines
    assert "Index size: 7 tools" in lines
    assert any(line.startswith("Matches after threshold: 1") for line in lines)


async def test_a_change_of_the_tools_is_told_to_everybody(shown: Front) -> None:
    heard = Heard()
    async with client(shown, "legacy", message_handler=heard), client(shown) as modern:
        async with modern.listen(tools_list_changed=True) as changes:
            await shown.tell_tools_changed()
            await anext(changes)
        await until(lambda: heard.events == ["notifications/tools/list_changed"])


async def test_two_hundred_sessions_do_not_see_each_others_lists(shown: Front) -> None:
    animals = ["lion", "bear", "wolf", "whale", "shark", "squid"]
    found: dict[int, list[str]] = {}
    said: dict[int, str] = {}
    everybody = anyio.Event()

    async def visit(number: int) -> None:
        async with client(shown, "legacy") as connected:
            await told(connected, SEARCH, {"query": animals[number % 6]})
            said[number] = await told(connected, "zoo___echo", {"text": f"I am {number}"})
            if len(said) == 200:
                assert shown.clients == 200
                everybody.set()
            await everybody.wait()
            found[number] = await names(connected)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(visit, number)
    for number in range(200):
        assert said[number] == f"I am {number}"
        assert [name.partition("___")[2] for name in found[number][:-1]] == [animals[number % 6]]
    await until(lambda: shown.clients == 0)
