"""An access profile has its own texts, parameters and pins for tools, in addition to the shared ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.gateway.mcp.harness import PROFILE, STATELESS, build_config, call_text, connect_client, gateway, plain_server
from toolcrib.config.parser import read_profile
from toolcrib.config.settings import AccessProfile, ToolOverride
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.safety.pinning import compute_fingerprint

pytestmark = pytest.mark.anyio

SHARED = {"one___echo": ToolOverride("one___echo", description="Repeat a text.", tags=("shared",))}
PAYROLL = {
    "one___echo": {"description": "Send a salary to an employee.", "fixedParameters": {"text": "from payroll"}},
    "one___p*": {"hint": "personnel number"},
}
PROFILES = (
    read_profile("payroll", {"overrides": PAYROLL, "mode": "search", "alwaysExpose": ["one___echo"]}),
    read_profile("pinned", {"pins": {"one___echo": "0" * 32}, "mode": "direct"}),
    AccessProfile("others", mode="search"),
)
BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    config = build_config(plain_server("one", ["echo", "pid"]), profiles=PROFILES)
    async with gateway(replace(config, overrides=SHARED)) as router:
        yield router


async def search(router: McpRouter, profile: str, query: str, revision: str) -> list[str]:
    """Return the names and descriptions that a search finds."""
    PROFILE.set(profile)
    async with connect_client(router, revision) as client:
        found = await client.call_tool("search_tools", {"query": query})
    tools = (found.structured_content or {})["tools"]
    return [f"{tool['name']}: {tool.get('description', '')}" for tool in tools]


@BOTH_REVISIONS
async def test_a_profile_lists_searches_and_calls_with_its_own_texts(router: McpRouter, revision: str) -> None:
    (found, *_) = await search(router, "payroll", "send a salary", revision)
    assert found.startswith("one___echo: Send a salary")
    assert "salary" not in "".join(await search(router, "others", "send a salary", revision))
    (found, *_) = await search(router, "payroll", "personnel number", revision)
    assert found.startswith("one___pid")
    PROFILE.set("payroll")
    async with connect_client(router, revision) as client:
        (echo,) = [tool for tool in (await client.list_tools()).tools if tool.name == "one___echo"]
        assert echo.description == "Send a salary to an employee." and "text" not in echo.input_schema["properties"]
        assert "from payroll" in await call_text(client, "one___echo", {})
    PROFILE.set("others")
    async with connect_client(router, revision) as client:
        assert "from others" in await call_text(client, "one___echo", {"text": "from others"})


async def test_the_shared_override_applies_where_a_profile_leaves_it(router: McpRouter) -> None:
    own, shared = (router.hub.get_view(name).entries["one___echo"] for name in ("payroll", "others"))
    assert (own.tool.tags, shared.tool.tags) == (("shared",), ("shared",))
    assert shared.tool.description == "Repeat a text."
    assert own.original == shared.original


@BOTH_REVISIONS
async def test_a_tool_that_differs_from_the_pin_of_a_profile_is_quarantined(router: McpRouter, revision: str) -> None:
    PROFILE.set("pinned")
    async with connect_client(router, revision) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["one___pid"]
        refused = await call_text(client, "one___echo", {"text": "hi"})
        assert "differs from the pin of your access profile" in refused
    assert not [found for found in await search(router, "pinned", "echo a text", revision) if "one___echo" in found]


async def test_a_tool_with_the_pinned_definition_is_available(router: McpRouter) -> None:
    original = router.hub.get_view("others").entries["one___echo"].original
    assert original
    pins = {"one___echo": compute_fingerprint(json.loads(json.dumps(original)))}
    router.hub.store.put_profile("approved", {"pins": pins}, 1.0)
    router.hub.refresh_profiles()
    assert set(router.hub.get_view("approved").entries) == {"one___echo", "one___pid"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"overrides": {"one___echo": {"name": "say"}}}, "one name for all profiles"),
        ({"overrides": {"one___echo": {"descripton": "x"}}}, "description"),
        ({"overrides": []}, "overrides"),
        ({"pins": {"one___echo": "abc"}}, "32 hexadecimal digits"),
        ({"pins": {"one___echo": 5}}, "pins"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read_profile("team", settings)
