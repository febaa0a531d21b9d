"""What lies outside a client's profile can't be listed, searched, named, called or heard of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
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
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

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
BOTH = pytest.mark.parametrize("era", ["legacy", STATELESS])


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OPEN, SHUT, profiles=PROFILES)) as made:
        yield made


@BOTH
async def test_nothing_of_other_profiles_is_ever_visible(front: McpRouter, era: str) -> None:
    PROFILE.set("reader")
    async with connect_client(front, era) as connected:
        seen: list[Any] = [
            await list_tool_names(connected),
            [prompt.name for prompt in (await connected.list_prompts()).prompts],
            [str(one.uri) for one in (await connected.list_resources()).resources],
            [
                t.uri_template
                for t in (await connected.list_resource_templates()).resource_templates
            ],
        ]
        for query in ("secret", "vault", "shut", "log", "everything there is", "*"):
            for tool in ("search_tools", "search_available_tools"):
                found = await connected.call_tool(tool, {"query": query})
                seen.append(found.model_dump_json().replace(query, ""))
        for name in ("shut___secret", "shut___log", "shut__secret"):
            for tool, given in (
                (name, {}),
                ("call_tool", {"name": name, "arguments": {}}),
                ("describe_tool", {"names": [name]}),
            ):
                result = await connected.call_tool(tool, given)
                assert result.is_error
                seen.append(part_text(result.content[0]).replace(name, ""))
        with pytest.raises(MCPError):
            await connected.get_prompt("shut___password")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://shut")
    PROFILE.set(None)
    text = json.dumps(seen)
    assert "open___echo" in text
    for word in ("shut", "secret", "vault", "password"):
        assert word not in text


@BOTH
async def test_a_profile_of_some_tools_knows_nothing_of_servers_without_them(
    front: McpRouter, era: str
) -> None:
    token = PROFILE.set("pids")
    async with connect_client(front, era) as connected:
        prompts = [prompt.name for prompt in (await connected.list_prompts()).prompts]
        uris = [str(one.uri) for one in (await connected.list_resources()).resources]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await connected.get_prompt("shut___password")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://shut")
    PROFILE.reset(token)
    assert (prompts, uris) == (["open___greet"], ["memo://open"])


@pytest.mark.parametrize(("profile", "fits"), [("picky", False), ("reader", True), (None, True)])
async def test_a_profile_says_how_sure_a_search_must_be(
    front: McpRouter, profile: str | None, fits: bool
) -> None:
    query = {"query": "say back the text that I give you"}
    token = PROFILE.set(profile)
    async with connect_client(front) as connected:
        found = await connected.call_tool("search_tools", query)
    PROFILE.reset(token)
    assert found.structured_content is not None
    assert found.structured_content["confident"] is fits
    assert (prompts.NO_GOOD_MATCH in part_text(found.content[0])) is not fits
    assert "open___echo" in part_text(found.content[0])


@pytest.mark.parametrize(("profile", "fits"), [(None, False), ("easy", True)])
async def test_a_gateway_says_how_sure_a_search_must_be_unless_a_profile_does(
    profile: str | None, fits: bool
) -> None:
    easy = AccessProfile("easy", confident_from=0.0)
    config = build_config(OPEN, profiles=[easy], mode="search", confident_from=1.0)
    token = PROFILE.set(profile)
    async with gateway(config) as front, connect_client(front) as connected:
        found = await connected.call_tool("search_tools", {"query": "text back"})
    PROFILE.reset(token)
    assert found.structured_content is not None
    assert found.structured_content["confident"] is fits


async def test_a_search_whose_finds_are_all_too_poor_has_found_nothing() -> None:
    async with (
        gateway(build_config(OPEN, mode="search", search_threshold=0.95)) as front,
        connect_client(front) as connected,
    ):
        found = await connected.call_tool("search_tools", {"query": "say back the text"})
    assert found.structured_content == {"tools": [], "confident": False}
    assert prompts.NO_MATCH in part_text(found.content[0])


@BOTH
async def test_two_profiles_have_prompts_of_one_name_each_its_own(era: str) -> None:
    """Without prefixes one name is a prompt of several servers, and each profile sees one."""
    servers = [
        plain_server(name, prompts=["greet"], resources=["memo://one"]) for name in ("a", "b")
    ]
    profiles = [AccessProfile(name, servers=(name,)) for name in ("a", "b")]
    async with gateway(build_config(*servers, profiles=profiles, prefix=False)) as front:
        for name in ("a", "b", "a"):
            token = PROFILE.set(name)
            async with connect_client(front, era) as connected:
                await connected.list_resources()
                got = await connected.get_prompt("greet")
                read = await connected.read_resource("memo://one")
                completed = await connected.complete(
                    PromptReference(name="greet"), {"name": "who", "value": "Al"}
                )
                with pytest.raises(MCPError, match="Unknown prompt"):
                    await connected.get_prompt("b___greet" if name == "a" else "a___greet")
            PROFILE.reset(token)
            assert part_text(got.messages[0].content) == f"greet of {name}"
            assert read.contents[0].text == f"memo://one of {name}"  # type: ignore[union-attr]
            assert completed.completion.values[1] == "Al"


async def test_a_prompt_that_is_gone_cannot_be_had_any_more(front: McpRouter) -> None:
    async with connect_client(front) as connected:
        await connected.list_prompts()
        front._passthrough._prompts["left"] = {}
        upstream = front.pool.servers.pop("shut")
        try:
            listed = [prompt.name for prompt in (await connected.list_prompts()).prompts]
            with pytest.raises(MCPError, match="Unknown prompt"):
                await connected.get_prompt("shut___password")
        finally:
            front.pool.servers["shut"] = upstream
    assert listed == ["open___greet"]
    # Nothing is kept of a profile that there is no more.
    assert "left" not in front._passthrough._prompts


async def test_news_of_a_server_goes_to_those_who_may_know_of_it(front: McpRouter) -> None:
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    token = PROFILE.set("reader")
    async with connect_client(front, "legacy", message_handler=on_message) as connected:
        await connected.subscribe_resource("memo://shut")
        PROFILE.reset(token)
        for method in ("prompts/list_changed", "resources/list_changed"):
            await front._forward_notification("shut", f"notifications/{method}", None)
        await front._forward_notification(
            "shut", "notifications/resources/updated", {"uri": "memo://shut"}
        )
        await front._forward_notification("open", "notifications/prompts/list_changed", None)
        await wait_until(lambda: heard)
    assert heard == ["notifications/prompts/list_changed"]


@BOTH
async def test_a_profile_has_its_own_pins_and_mode(front: McpRouter, era: str) -> None:
    token = PROFILE.set("echoes")
    try:
        async with connect_client(front, era) as connected:
            listed = (await connected.list_tools()).tools
            found = await connected.call_tool("search_tools", {"query": "echo"})
    finally:
        PROFILE.reset(token)
    assert [tool.name for tool in listed[3:]] == ["open___echo"]
    assert "2 more tools" in (listed[0].description or "")
    assert found.structured_content is not None
    named = {tool["name"] for tool in found.structured_content["tools"]}
    assert named == {"open___echo", "shut___echo"}


@BOTH
async def test_a_profile_that_does_not_exist_shows_nothing(front: McpRouter, era: str) -> None:
    token = PROFILE.set("nobody")
    try:
        async with connect_client(front, era) as connected:
            with pytest.raises(MCPError, match="no profile 'nobody'"):
                await connected.list_tools()
    finally:
        PROFILE.reset(token)


async def test_a_session_stays_with_its_profile(front: McpRouter) -> None:
    token = PROFILE.set("reader")
    service = front._get_profile
    async with connect_client(front, "legacy") as connected:
        PROFILE.reset(token)
        front._get_profile = lambda ctx: "echoes"
        try:
            with pytest.raises(MCPError, match="another profile's"):
                await connected.list_tools()
        finally:
            front._get_profile = service


async def test_what_waits_for_approval_is_counted_for_those_who_may_know_of_it() -> None:
    profiles = (AccessProfile("echoes", tools=("*___secret",)), AccessProfile("all"))
    config = build_config(SHUT, profiles=profiles, safety=SafetyConfig(changed="block"))
    async with gateway(config) as made, connect_client(made) as connected:
        await call_text(connected, "shut___change", {"description": "Something else now."})
        await wait_until(lambda: made.hub.directory.servers[0].quarantined)
        assert "shut___echo" not in await list_tool_names(connected)
        everybody = await call_text(connected, "search_tools", {"query": "secret"})
        token = PROFILE.set("echoes")
        some = await call_text(connected, "search_tools", {"query": "secret"})
        PROFILE.reset(token)
        assert "1 tool of shut wait until a person approves them" in everybody
        assert "wait" not in some
        # The call is refused too, whatever the client still has in its list.
        refused = await connected.call_tool("shut___echo", {"text": "x"})
        assert refused.is_error
        assert made.hub.store.approve("shut") == ["echo"]
        await wait_until(lambda: not made.hub.directory.servers[0].quarantined)
        assert await call_text(connected, "shut___echo", {"text": "again"}) == "again"
