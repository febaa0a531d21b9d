"""A client cannot list, search, name, call or receive anything outside its access profile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference

from tests.gateway.mcp.harness import (
    PROFILE,
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
    wait_until,
)
from toolcrib.config.settings import AccessProfile, SafetyConfig
from toolcrib.core import prompts
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.hub.hub import Hub
from toolcrib.storage import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

OPEN = plain_server("open", ["echo", "pid", "change"], prompts=["greet"], resources=["memo://open"])
SHUT = plain_server(
    "shut",
    ["secret", "log", "touch", "echo", "change"],
    prompts=["password"],
    resources=["memo://shut"],
    instructions="The vault.",
)
PROFILES = (
    AccessProfile("reader", servers=("open",)),
    AccessProfile("pids", tools=("*___pid",)),
    AccessProfile("echoes", tools=("*___echo",), always_expose=("open___echo",), mode="search"),
    AccessProfile("picky", mode="search", confident_from=1.0),
)
BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OPEN, SHUT, profiles=PROFILES)) as router:
        yield router


@BOTH_REVISIONS
async def test_other_profiles_are_never_visible(router: McpRouter, revision: str) -> None:
    PROFILE.set("reader")
    async with connect_client(router, revision) as connected:
        visible: list[Any] = [
            await list_tool_names(connected),
            [prompt.name for prompt in (await connected.list_prompts()).prompts],
            [str(resource.uri) for resource in (await connected.list_resources()).resources],
            [t.uri_template for t in (await connected.list_resource_templates()).resource_templates],
        ]
        for query in ("secret", "vault", "shut", "log", "everything there is", "*"):
            for tool in ("search_tools", "search_available_tools"):
                result = await connected.call_tool(tool, {"query": query})
                visible.append(result.model_dump_json().replace(query, ""))
        for name in ("shut___secret", "shut___log", "shut__secret"):
            for tool, arguments in (
                (name, {}),
                ("call_tool", {"name": name, "arguments": {}}),
                ("describe_tool", {"names": [name]}),
            ):
                result = await connected.call_tool(tool, arguments)
                assert result.is_error
                visible.append(part_text(result.content[0]).replace(name, ""))
        with pytest.raises(MCPError):
            await connected.get_prompt("shut___password")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://shut")
    PROFILE.set(None)
    text = json.dumps(visible)
    assert "open___echo" in text
    for word in ("shut", "secret", "vault", "password"):
        assert word not in text


@BOTH_REVISIONS
async def test_tool_filter_hides_prompts_and_resources(router: McpRouter, revision: str) -> None:
    token = PROFILE.set("pids")
    async with connect_client(router, revision) as connected:
        prompts = [prompt.name for prompt in (await connected.list_prompts()).prompts]
        uris = [str(resource.uri) for resource in (await connected.list_resources()).resources]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await connected.get_prompt("shut___password")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://shut")
    PROFILE.reset(token)
    assert (prompts, uris) == ([], [])


@pytest.mark.parametrize(("profile", "confident"), [("picky", False), ("reader", True), (None, True)])
async def test_profile_sets_the_confidence_threshold(router: McpRouter, profile: str | None, confident: bool) -> None:
    query = {"query": "say back the text that I give you"}
    token = PROFILE.set(profile)
    async with connect_client(router) as connected:
        result = await connected.call_tool("search_tools", query)
    PROFILE.reset(token)
    assert result.structured_content is not None
    assert result.structured_content["confident"] is confident
    assert (prompts.NO_GOOD_MATCH in part_text(result.content[0])) is not confident
    assert "open___echo" in part_text(result.content[0])


@pytest.mark.parametrize(("profile", "confident"), [(None, False), ("easy", True)])
async def test_profile_threshold_overrides_the_gateway_threshold(profile: str | None, confident: bool) -> None:
    easy = AccessProfile("easy", confident_from=0.0)
    config = build_config(OPEN, profiles=[easy], mode="search", confident_from=1.0)
    token = PROFILE.set(profile)
    async with gateway(config) as router, connect_client(router) as connected:
        result = await connected.call_tool("search_tools", {"query": "text back"})
    PROFILE.reset(token)
    assert result.structured_content is not None
    assert result.structured_content["confident"] is confident


async def test_results_below_the_score_threshold_are_dropped() -> None:
    async with (
        gateway(build_config(OPEN, mode="search", search_threshold=0.95)) as router,
        connect_client(router) as connected,
    ):
        result = await connected.call_tool("search_tools", {"query": "say back the text"})
    assert result.structured_content == {"tools": [], "confident": False, "notes": [prompts.NO_MATCH]}
    assert prompts.NO_MATCH in part_text(result.content[0])


@BOTH_REVISIONS
async def test_same_prompt_name_resolves_per_profile(revision: str) -> None:
    """Without prefixes, several servers have a prompt of the same name; each profile sees one."""
    servers = [plain_server(name, prompts=["greet"], resources=["memo://one"]) for name in ("a", "b")]
    profiles = [AccessProfile(name, servers=(name,)) for name in ("a", "b")]
    async with gateway(build_config(*servers, profiles=profiles, prefix=False)) as router:
        for name in ("a", "b", "a"):
            token = PROFILE.set(name)
            async with connect_client(router, revision) as connected:
                await connected.list_resources()
                prompt = await connected.get_prompt("greet")
                read = await connected.read_resource("memo://one")
                completed = await connected.complete(PromptReference(name="greet"), {"name": "who", "value": "Al"})
                with pytest.raises(MCPError, match="Unknown prompt"):
                    await connected.get_prompt("b___greet" if name == "a" else "a___greet")
            PROFILE.reset(token)
            assert part_text(prompt.messages[0].content) == f"greet of {name}"
            assert read.contents[0].text == f"memo://one of {name}"  # type: ignore[union-attr]
            assert completed.completion.values[1] == "Al"


async def test_prompt_of_a_removed_server_is_unknown(router: McpRouter) -> None:
    async with connect_client(router) as connected:
        await connected.list_prompts()
        router.passthrough.prompt_owners["removed"] = {}
        upstream = router.pool.servers.pop("shut")
        try:
            listed = [prompt.name for prompt in (await connected.list_prompts()).prompts]
            with pytest.raises(MCPError, match="Unknown prompt"):
                await connected.get_prompt("shut___password")
        finally:
            router.pool.servers["shut"] = upstream
    assert listed == ["open___greet"]
    assert "removed" not in router.passthrough.prompt_owners


async def test_notifications_reach_only_profiles_that_see_the_server(router: McpRouter) -> None:
    received: list[str] = []

    async def on_message(message: Any) -> None:
        received.append(getattr(message, "method", ""))

    token = PROFILE.set("reader")
    async with connect_client(router, "legacy", message_handler=on_message) as connected:
        await connected.subscribe_resource("memo://shut")
        PROFILE.reset(token)
        for method in ("prompts/list_changed", "resources/list_changed"):
            await router.forward_notification("shut", f"notifications/{method}", None)
        await router.forward_notification("shut", "notifications/resources/updated", {"uri": "memo://shut"})
        await router.forward_notification("open", "notifications/prompts/list_changed", None)
        await wait_until(lambda: received)
    assert received == ["notifications/prompts/list_changed"]


@BOTH_REVISIONS
async def test_profile_has_its_own_exposed_tools_and_mode(router: McpRouter, revision: str) -> None:
    token = PROFILE.set("echoes")
    try:
        async with connect_client(router, revision) as connected:
            listed = (await connected.list_tools()).tools
            result = await connected.call_tool("search_tools", {"query": "echo"})
    finally:
        PROFILE.reset(token)
    assert [tool.name for tool in listed[3:]] == ["open___echo"]
    assert "2 more tools" in (listed[0].description or "")
    assert result.structured_content is not None
    names = {tool["name"] for tool in result.structured_content["tools"]}
    assert names == {"open___echo", "shut___echo"}


@BOTH_REVISIONS
async def test_unknown_profile_is_an_error(router: McpRouter, revision: str) -> None:
    token = PROFILE.set("nobody")
    try:
        async with connect_client(router, revision) as connected:
            with pytest.raises(MCPError, match="no profile 'nobody'"):
                await connected.list_tools()
    finally:
        PROFILE.reset(token)


async def test_session_is_bound_to_its_profile() -> None:
    profile = "reader"
    hub = Hub(build_config(OPEN, profiles=PROFILES), open_store("sqlite://"))
    async with run_gateway(hub, lambda ctx: profile) as router, connect_client(router, "legacy") as connected:
        profile = "echoes"
        with pytest.raises(MCPError, match="belongs to another profile"):
            await connected.list_tools()
    hub.close()


@BOTH_REVISIONS
async def test_tool_filter_also_applies_to_prompts_and_resources(revision: str) -> None:
    profiles = (
        AccessProfile("narrow", tools=("open___echo", "open___g*")),
        AccessProfile("whole", tools=("open___*",)),
        AccessProfile("none", tools=("open___echo",)),
    )
    expected = {"narrow": (["open___greet"], []), "whole": (["open___greet"], ["memo://open"]), "none": ([], [])}
    config = build_config(replace(OPEN, name="first", alias="open"), SHUT, profiles=profiles)
    async with gateway(config) as router:
        for profile, (prompt_names, uris) in expected.items():
            token = PROFILE.set(profile)
            async with connect_client(router, revision) as connected:
                assert [prompt.name for prompt in (await connected.list_prompts()).prompts] == prompt_names
                assert [str(one.uri) for one in (await connected.list_resources()).resources] == uris
                if not uris:
                    with pytest.raises(MCPError, match="not found"):
                        await connected.read_resource("memo://open")
                if not prompt_names:
                    with pytest.raises(MCPError, match="Unknown prompt"):
                        await connected.get_prompt("open___greet")
            PROFILE.reset(token)


async def test_quarantined_tools_are_counted_per_profile() -> None:
    profiles = (AccessProfile("echoes", tools=("*___secret",)), AccessProfile("all"))
    config = build_config(SHUT, profiles=profiles, safety=SafetyConfig(changed="block"))
    async with gateway(config) as router, connect_client(router) as connected:
        await call_text(connected, "shut___change", {"description": "Something else now."})
        await wait_until(lambda: router.hub.directory.servers[0].quarantined)
        assert "shut___echo" not in await list_tool_names(connected)
        unfiltered = await call_text(connected, "search_tools", {"query": "secret"})
        token = PROFILE.set("echoes")
        filtered = await call_text(connected, "search_tools", {"query": "secret"})
        PROFILE.reset(token)
        assert "1 tool of shut cannot be used until a person approves: shut___echo" in unfiltered
        assert "approve" not in filtered
        # A call is refused even if the client still has the tool in its list.
        refused = await connected.call_tool("shut___echo", {"text": "x"})
        assert refused.is_error
        assert router.hub.store.approve("shut") == ["echo"]
        await wait_until(lambda: not router.hub.directory.servers[0].quarantined)
        assert await call_text(connected, "shut___echo", {"text": "again"}) == "again"
