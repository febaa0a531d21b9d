"""Call tools by risk, and approvals of calls by the user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from mcp_types import ElicitResult

from tests.gateway.mcp.harness import (
    PROFILE,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
)
from toolcrib.config.settings import AccessProfile, SafetyConfig, ToolOverride
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio
REVISIONS = pytest.mark.parametrize("revision", ["legacy", "2026-07-28"])


def tool(name: str, **hints: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}


TOOLS = [tool("look", readOnlyHint=True), tool("add", destructiveHint=False), tool("drop"), "ask"]


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    config = build_config(
        plain_server("files", TOOLS),
        plain_server("modern", TOOLS, revision="2026-07-28"),
        profiles=[AccessProfile("careful", ask="write"), AccessProfile("bold", ask="destructive")],
        mode="search",
        call_tools="by_risk",
    )
    async with gateway(config) as running:
        yield running


class AnsweringUser:
    """Answers every request for approval, and remembers its message."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.messages: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.messages.append(params.message)
        return ElicitResult(action=self.action)  # type: ignore[arg-type]


async def test_each_risk_has_its_own_call_tool(router: McpRouter) -> None:
    async with connect_client(router) as client:
        tools = {listed.name: listed for listed in (await client.list_tools()).tools}
        assert [name for name in tools if name.startswith("call_")] == [
            "call_read_tool",
            "call_write_tool",
            "call_destructive_tool",
        ]
        hints = {name: listed.annotations for name, listed in tools.items() if listed.annotations}
        assert hints["call_read_tool"].read_only_hint is True
        assert hints["call_write_tool"].destructive_hint is False
        found = await client.call_tool("search_tools", {"query": "files___look"})
        assert found.structured_content["tools"][0]["call"] == "call_read_tool"
        assert "[call_read_tool]" in part_text(found.content[0])
        for name, call, refused in (
            ("look", "call_read_tool", ()),
            ("add", "call_write_tool", ("call_read_tool",)),
            ("drop", "call_destructive_tool", ("call_read_tool", "call_write_tool", "call_tool")),
        ):
            assert f'"{name}"' in await call_text(client, call, {"name": f"files___{name}", "arguments": {}})
            for weaker in refused:
                result = await client.call_tool(weaker, {"name": f"files___{name}", "arguments": {}})
                assert result.is_error
                assert f"Call it with {call}" in part_text(result.content[0])
        stronger = await client.call_tool("call_destructive_tool", {"name": "files___look", "arguments": {}})
        assert not stronger.is_error


@REVISIONS
async def test_user_is_asked_before_a_call_of_the_configured_risk(router: McpRouter, revision: str) -> None:
    PROFILE.set("careful")
    try:
        user = AnsweringUser("accept")
        async with connect_client(router, revision, elicitation_callback=user) as client:
            assert not (await client.call_tool("files___look", {})).is_error
            assert user.messages == []
            result = await client.call_tool("files___add", {"text": "a note"})
            assert not result.is_error
            assert user.messages == ['Allow this call?\n\nfiles___add (write) {"text": "a note"}']
            assert "approval" not in part_text(result.content[0])
        user = AnsweringUser("decline")
        async with connect_client(router, revision, elicitation_callback=user) as client:
            result = await client.call_tool("call_destructive_tool", {"name": "files___drop", "arguments": {}})
            assert result.is_error
            assert "did not approve" in part_text(result.content[0])
        async with connect_client(router, revision) as client:
            result = await client.call_tool("files___drop", {})
            assert "this client cannot ask" in part_text(result.content[0])
        PROFILE.set("bold")
        async with connect_client(router, revision) as client:
            assert not (await client.call_tool("files___add", {})).is_error
            assert (await client.call_tool("files___drop", {})).is_error
    finally:
        PROFILE.set(None)


@REVISIONS
async def test_approved_call_can_ask_for_input_itself(router: McpRouter, revision: str) -> None:
    PROFILE.set("careful")
    try:
        user = AnsweringUser("accept")
        async with connect_client(router, revision, elicitation_callback=user) as client:
            request = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
            arguments = {"method": "elicitation/create", "params": request}
            text = await call_text(client, "modern___ask", arguments)
            assert "accept" in text
            assert user.messages[1:] == ["Which?"]
    finally:
        PROFILE.set(None)


async def test_one_call_tool_is_the_default() -> None:
    config = build_config(plain_server("files", TOOLS), mode="search")
    async with gateway(config) as running, connect_client(running) as client:
        assert await list_tool_names(client) == ["search_tools", "describe_tool", "call_tool"]


async def test_user_is_shown_the_arguments_without_those_that_an_override_removes() -> None:
    override = ToolOverride("files___drop", fixed_parameters={"owner": "acme"}, hidden_parameters=("force",))
    config = build_config(plain_server("files", TOOLS), mode="search")
    config = replace(config, safety=SafetyConfig(ask="write"), overrides={override.pattern: override})
    user = AnsweringUser("accept")
    async with gateway(config) as running, connect_client(running, elicitation_callback=user) as client:
        await client.call_tool("files___drop", {"owner": "evil", "force": True, "text": "a note"})
    assert user.messages == ['Allow this call?\n\nfiles___drop (destructive) {"text": "a note"}']
