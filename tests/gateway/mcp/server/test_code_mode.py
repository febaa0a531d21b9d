"""`run_code` calls tools in a sandbox, with the rights, validation, audit and approvals of each call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from tests.gateway.mcp.harness import (
    PROFILE,
    build_config,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
)
from toolcrib.config.settings import AccessProfile, CodeModeConfig, ResultsConfig, SafetyConfig
from toolcrib.core import prompts
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.hub.hub import build_manifest

pytest.importorskip("pydantic_monty", reason="install toolcrib[code]")
pytestmark = pytest.mark.anyio
REVISIONS = pytest.mark.parametrize("revision", ["legacy", "2026-07-28"])
ECHO = {
    "name": "echo",
    "description": "Return the arguments.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "number": {"type": "integer"}},
        "required": ["text"],
    },
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "number": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
}
WRITE = {**ECHO, "name": "echo-write", "annotations": {"destructiveHint": False}}
RECALL = {"name": "recall", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    config = build_config(
        plain_server("office", [ECHO, WRITE, "fail"]),
        plain_server("vault", [ECHO, WRITE]),
        plain_server("notes", [RECALL, "remember"]),
        plain_server("shed", [{**ECHO, "annotations": {}}, WRITE]),
        profiles=[
            AccessProfile("few", servers=("office",)),
            AccessProfile("careful", ask="write"),
            AccessProfile("bold", ask="destructive"),
        ],
        results=ResultsConfig(),
        mode="search",
    )
    limits = CodeModeConfig(enabled=True, max_seconds=0.5, max_calls=20, max_memory_bytes=32 * 1024 * 1024)
    async with gateway(replace(config, code_mode=limits)) as running:
        yield running


async def run_code(client: Client, code: str) -> tuple[str, bool]:
    result = await client.call_tool("run_code", {"code": code})
    return part_text(result.content[0]), bool(result.is_error)


async def test_only_the_final_value_is_returned(router: McpRouter) -> None:
    code = """
import asyncio
results = await asyncio.gather(*[tools.office.echo(text=str(n), number=n) for n in range(10)])
print("not shown")
{"sum": sum(r["number"] for r in results), "last": results[-1]["text"]}
"""
    async with connect_client(router) as client:
        assert "run_code" in await list_tool_names(client)
        assert await run_code(client, code) == ('{"sum":45,"last":"9"}', False)
        assert await run_code(client, "print('shown')") == ("shown\n", False)
        found = await client.call_tool("search_tools", {"query": "office___echo"})
        stub = 'await tools.office.echo(text: str, number: int = …) -> {"text": str, "number": int}'
        assert stub in part_text(found.content[0])
        assert found.structured_content["tools"][0]["signature"] == f"office___echo: {stub}"


async def test_scripts_search_and_call_by_name(router: McpRouter) -> None:
    code = """
found = await search_tools("return the arguments", 3)
(await call_tool(found[0]["name"], {"text": "hello"}))["text"]
"""
    async with connect_client(router) as client:
        assert await run_code(client, code) == ("hello", False)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("await tools.office.echo(number=3)", "text"),
        ("await tools.office.ecko(text='x')", "tools.office.echo"),
        ("await tools.office.fail()", "it went wrong"),
        ("while True: pass", "computed for more than 0.5 seconds; do less"),
        ("print('a' * 70_000)", "printed more than 65,536 bytes; end it with a value"),
        ("'a' * 10**9", "memory limit"),
        ("for n in range(30):\n    await tools.office.echo(text=str(n))", "at most 20 calls"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("import os\nos.environ['HOME']", "Error"),
        ("import socket", "socket"),
        ("1 +", "SyntaxError"),
        ("tools.office.echo(text='x')", "await"),
        ("", "`code` is missing"),
    ],
)
async def test_failures_and_limits_are_explained(router: McpRouter, code: str, reason: str) -> None:
    async with connect_client(router) as client:
        text, is_error = await run_code(client, code)
        assert is_error
        assert reason in text


@pytest.mark.parametrize(
    ("code", "text", "is_error"),
    [
        ("{('a', 1): 2}", "{('a', 1): 2}", False),
        (
            "[tools.office.echo(text='a')]",
            "The script failed:\na call was not awaited; write `await tools.server.tool(…)`",
            True,
        ),
        (
            "10**5000",
            "The script failed:\nits value has no text: it is nested too deeply, or a number is too long",
            True,
        ),
        (
            "value = []\nfor _ in range(5000):\n    value = [value]\nvalue",
            "The script failed:\nits value has no text: it is nested too deeply, or a number is too long",
            True,
        ),
    ],
)
async def test_value_that_is_not_json_is_shown_or_explained(
    router: McpRouter, code: str, text: str, is_error: bool
) -> None:
    async with connect_client(router) as client:
        assert await run_code(client, code) == (text, is_error)


async def test_half_of_an_emoji_in_a_result_is_replaced() -> None:
    server = plain_server("texts", ["variable"], given={"env": {"TEXT": r'{"name": "\ud83d"}'}})
    config = replace(build_config(server), code_mode=CodeModeConfig(enabled=True))
    async with gateway(config) as running, connect_client(running) as client:
        assert await run_code(client, "await tools.texts.variable(name='TEXT')") == ('{"name":"�"}', False)


async def test_script_can_handle_the_error_of_a_tool(router: McpRouter) -> None:
    code = "try:\n    await tools.office.fail()\nexcept Exception as error:\n    said = str(error)\nsaid"
    async with connect_client(router) as client:
        assert await run_code(client, code) == ("it went wrong", False)


async def test_large_final_value_is_stored_and_can_be_read(router: McpRouter) -> None:
    async with connect_client(router) as client:
        result = await client.call_tool("run_code", {"code": "[{'n': n, 'name': f'row {n}'} for n in range(5000)]"})
        assert result.meta
        handle = result.meta["toolcrib/result"]["handle"]
        read = await client.call_tool("read_result", {"handle": handle, "path": "$[4321].name"})
        assert part_text(read.content[0]) == "$[4321].name: row 4321"


async def test_rights_and_audit_apply_to_every_inner_call(router: McpRouter) -> None:
    PROFILE.set("few")
    try:
        async with connect_client(router) as client:
            text, is_error = await run_code(client, "await tools.vault.echo(text='x')")
            assert is_error
            assert "There is no tool tools.vault.echo" in text
            found = await client.call_tool("run_code", {"code": "await search_tools('vault', 20)"})
            assert "vault" not in part_text(found.content[0])
            before = router.pool.servers["office"].call_count
            await run_code(client, "await tools.office.echo(text='x')\nawait tools.office.echo(text='y')")
            assert router.pool.servers["office"].call_count == before + 2
    finally:
        PROFILE.set(None)
    router.activity.flush()
    router.hub.flush()
    assert router.hub.store.get_usage()["office___echo"].calls >= 2


LOOP = """
created = []
for n in range(3):
    note = await tools.office.echo_write(text=f"note {n}", number=n)
    created.append(note["number"])
last = await tools.office.echo_write(text=f"after {note['text']}")
[created, last["text"]]
"""


class ApprovingUser:
    """Answers every request for approval, and remembers its message."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.messages: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.messages.append(params.message)
        return ElicitResult(action=self.action)  # type: ignore[arg-type]


@REVISIONS
async def test_one_approval_covers_all_writes_of_a_script(router: McpRouter, revision: str) -> None:
    PROFILE.set("careful")
    try:
        user = ApprovingUser("accept")
        calls = router.pool.servers["office"]
        async with connect_client(router, revision, elicitation_callback=user) as client:
            before = calls.call_count
            text, is_error = await run_code(client, LOOP)
            assert not is_error, text
            assert json.loads(text) == [[0, 1, 2], "after note 2"]
            # Each call has reached the server once.
            assert calls.call_count == before + 4
        (message,) = user.messages
        assert "make 4 calls" in message
        assert 'office___echo-write (write) {"text": "note 2", "number": 2}' in message
        assert "after ‹result" in message
        user = ApprovingUser("decline")
        async with connect_client(router, revision, elicitation_callback=user) as client:
            before = calls.call_count
            text, is_error = await run_code(client, LOOP)
            assert is_error
            assert "did not approve" in text
            assert calls.call_count == before
    finally:
        PROFILE.set(None)


READ_AFTER_WRITE = """
before = await tools.notes.recall()
for word in ("one", "two"):
    await tools.notes.remember(text=word)
    after = await tools.notes.recall()
[before, after]
"""


async def test_reads_after_an_approved_write_see_it(router: McpRouter) -> None:
    PROFILE.set("careful")
    try:
        user = ApprovingUser("accept")
        async with connect_client(router, elicitation_callback=user) as client:
            assert await run_code(client, READ_AFTER_WRITE) == ('[[],["one","two"]]', False)
        assert len(user.messages) == 1
    finally:
        PROFILE.set(None)
    # The first read is not repeated.
    assert router.pool.servers["notes"].call_count == 7


POLLING = """
job = await tools.shed.echo(text="done")
while (await tools.office.echo(text=job["text"]))["text"] != "done":
    pass
"finished"
"""


async def test_polling_for_the_result_of_a_call_that_waits_ends_at_the_limit_of_calls(router: McpRouter) -> None:
    PROFILE.set("bold")
    try:
        user = ApprovingUser("accept")
        async with connect_client(router, elicitation_callback=user) as client:
            assert await run_code(client, POLLING) == ("finished", False)
        assert len(user.messages) == 1
    finally:
        PROFILE.set(None)


AFTER_DESTRUCTION = """
removed = await tools.shed.echo(text="gone")
written = await tools.shed.echo_write(text=f"{removed['text']} for ever")
(await tools.office.echo(text=written["text"]))["text"]
"""


@REVISIONS
async def test_calls_that_depend_on_an_approval_wait_for_it(router: McpRouter, revision: str) -> None:
    PROFILE.set("bold")
    try:
        for action, outcome, calls in (
            ("accept", ("gone for ever", False), [2, 1]),
            ("decline", (prompts.APPROVAL_DECLINED, True), [0, 0]),
        ):
            user = ApprovingUser(action)
            servers = [router.pool.servers[name] for name in ("shed", "office")]
            before = [server.call_count for server in servers]
            async with connect_client(router, revision, elicitation_callback=user) as client:
                assert await run_code(client, AFTER_DESTRUCTION) == outcome
            assert [server.call_count - count for server, count in zip(servers, before, strict=True)] == calls
            # The write needs no approval by itself, but it depends on a call that does.
            assert "make 2 calls" in user.messages[0]
    finally:
        PROFILE.set(None)


async def test_run_code_is_not_offered_unless_enabled() -> None:
    config = build_config(plain_server("office", [ECHO]), mode="search")
    async with gateway(config) as running, connect_client(running) as client:
        assert "run_code" not in await list_tool_names(client)
        result = await client.call_tool("run_code", {"code": "1"})
        assert result.is_error


HELD_TWIN = """
errors = []
for name in ("office___echo", "office___wipe"):
    try:
        await call_tool(name, {"text": "x"})
    except Exception as error:
        errors.append(str(error))
try:
    await tools.office.echo(text="x")
except Exception as error:
    errors.append(str(error))
errors
"""


async def test_script_learns_that_a_tool_is_held_and_which_one_has_changed() -> None:
    config = build_config(plain_server("office", [ECHO]), mode="search")
    config = replace(config, code_mode=CodeModeConfig(enabled=True), safety=SafetyConfig(changed="block"))
    async with gateway(config) as running, connect_client(running) as client:
        office = running.hub.config.servers["office"]
        changed = {**ECHO, "description": "Send the arguments away."}
        running.hub.update_server(office, build_manifest(office, [changed, {**ECHO, "name": "echo2"}], {}))
        held, unknown, by_path = json.loads((await run_code(client, HELD_TWIN))[0])
        for text in (held, by_path):
            assert "office___echo is quarantined, because" in text
            assert "echo2" not in text
        assert unknown.startswith("There is no tool office___wipe.")
        running.hub.reconfigure(replace(config, safety=SafetyConfig(changed="warn")))
        (found,) = [
            tool
            for tool in json.loads((await run_code(client, "await search_tools('arguments')"))[0])
            if "warning" in tool
        ]
        assert found["name"] == "office___echo"
        assert "has changed" in found["warning"]


LATE_WRITE = """
first = await tools.office.echo_write(text="one")
await tools.office.echo_write(text="for " + first["text"])
if first["text"] == "one":
    note = await tools.vault.echo_write(text="two")
    if note["text"] == "two":
        await tools.office.echo_write(text="unseen")
"done"
"""


async def test_an_approval_is_used_once(router: McpRouter) -> None:
    PROFILE.set("careful")
    try:
        user = ApprovingUser("accept")
        async with connect_client(router, elicitation_callback=user) as client:
            assert await run_code(client, LATE_WRITE) == ("done", False)
        # The approved text with a placeholder was sent in the second run, so it does not cover a later text.
        assert [message.partition("make ")[2][:6] for message in user.messages] == ["2 call", "1 call", "1 call"]
        assert '{"text": "for ‹result 1›"}' in user.messages[0]
        assert '{"text": "unseen"}' in user.messages[2]
    finally:
        PROFILE.set(None)


async def test_approval_of_one_call_is_singular(router: McpRouter) -> None:
    PROFILE.set("careful")
    try:
        user = ApprovingUser("decline")
        async with connect_client(router, elicitation_callback=user) as client:
            await run_code(client, "await tools.office.echo_write(text='x')")
        assert user.messages[0].startswith("Allow this script to make 1 call? ")
    finally:
        PROFILE.set(None)
