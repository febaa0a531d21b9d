"""Tasks of servers, relayed to a client of the official SDK with the extension for tasks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import anyio
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    NotificationParams,
    Request,
    RequestParams,
    Result,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from tests.gateway.mcp.harness import (
    PROFILE,
    build_config,
    call_text,
    connect_client,
    gateway,
    part_text,
    plain_server,
    script_server,
)
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import AccessProfile, CodeModeConfig, ResultsConfig
from toolcrib.gateway.mcp.server.client import MISSING_CAPABILITY, TASKS_EXTENSION
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio


class TaskHandle(Result):
    result_type: Literal["task"] = "task"
    taskId: str
    status: str = ""
    ttlMs: int | None = None


class TaskRequestParams(RequestParams):
    taskId: str
    inputResponses: dict[str, Any] | None = None


class TaskState(Result, extra="allow"):
    taskId: str = ""


class TaskRequest(Request[TaskRequestParams, str]):
    name_param = "taskId"


async def ask(session: Any, method: str, task_id: str, responses: dict[str, Any] | None = None) -> dict[str, Any]:
    params = TaskRequestParams(taskId=task_id, inputResponses=responses)
    state = await session.send_request(TaskRequest(method=method, params=params), TaskState)
    dumped: dict[str, Any] = state.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


class TaskClient(ClientExtension):
    """Polls every task to its end, and remembers the states."""

    identifier = TASKS_EXTENSION

    def __init__(self) -> None:
        self.handles: list[TaskHandle] = []
        self.states: list[dict[str, Any]] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=TaskHandle, resolve=self.resolve),)

    async def resolve(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        self.handles.append(handle)
        while True:
            state = await ask(context.session, "tasks/get", handle.taskId)
            self.states.append(state)
            if state["status"] == "input_required":
                await ask(context.session, "tasks/update", handle.taskId, {"who": {"content": {"name": "Ada"}}})
            elif state["status"] != "working":
                return CallToolResult.model_validate(state.get("result") or {"content": []})
            await anyio.sleep(0)


def task_server(name: str, **spec: Any) -> ServerConfig:
    options = spec.pop("given", {})
    return script_server(name, "tasks.py", json.dumps(spec), **options)


@asynccontextmanager
async def connect_task_client(router: McpRouter) -> AsyncIterator[tuple[Client, TaskClient]]:
    extension = TaskClient()
    async with connect_client(router, extensions=[extension]) as client:
        yield client, extension


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    config = build_config(
        task_server("first"),
        task_server("second"),
        task_server("strict", requires=True, given={"call_seconds": 3.0}),
        plain_server("plain", ["echo"]),
        profiles=[AccessProfile("narrow", servers=("plain",)), AccessProfile("other")],
        mode="search",
        results=ResultsConfig(budget_tokens=1_000),
    )
    async with gateway(config) as running:
        yield running


async def work(client: Client, server: str, tool: str = "work", **arguments: Any) -> str:
    return await call_text(client, "call_tool", {"name": f"{server}___{tool}", "arguments": arguments})


async def test_a_task_is_polled_to_its_result(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, tasks):
        assert await work(client, "first", words="finished") == "finished"
        assert await call_text(client, "first___work", {"words": "directly"}) == "directly"
    assert [state["status"] for state in tasks.states] == ["working", "completed"] * 2
    (first, second) = tasks.handles
    assert (first.status, first.ttlMs) == ("working", 60_000)
    assert first.taskId != second.taskId
    assert all(state["taskId"] == first.taskId for state in tasks.states[:2])
    assert tasks.states[0]["pollIntervalMs"] == 100


async def test_equal_ids_of_two_servers_are_two_tasks(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, _):
        assert await work(client, "second", words="two") == "two"
        assert await work(client, "first", words="one") == "one"


async def test_a_task_that_needs_input_gets_it(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, tasks):
        assert await work(client, "first", "ask") == "hello Ada"
    assert tasks.states[1]["inputRequests"]["who"]["params"] == {"message": "Who?"}


async def test_failed_tasks_keep_their_error(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, tasks):
        result = await client.call_tool("call_tool", {"name": "first___fail", "arguments": {}})
        assert result.is_error
        assert part_text(result.content[0]) == "no luck"
        await work(client, "first", "break")
    assert tasks.states[-1]["error"] == {"code": -32603, "message": "it broke"}


async def test_a_large_result_of_a_task_is_a_preview(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, _):
        text = await work(client, "first", words="word " * 20_000)
    assert "read_result" in text
    assert len(text) < 20_000


async def test_only_the_caller_can_use_a_task(router: McpRouter) -> None:
    async with connect_task_client(router) as (client, tasks):
        await work(client, "first")
        (handle,) = tasks.handles
        assert (await ask(client.session, "tasks/get", handle.taskId))["status"] == "completed"
        for id in ("1", "task_1", ""):
            with pytest.raises(MCPError, match="there is no such task"):
                await ask(client.session, "tasks/get", id)
        assert "no result" in (await call_text(client, "read_result", {"handle": handle.taskId})).lower()
    for profile in ("narrow", "other"):
        token = PROFILE.set(profile)
        try:
            async with connect_task_client(router) as (stranger, _):
                for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                    with pytest.raises(MCPError, match="belongs to another caller"):
                        await ask(stranger.session, method, handle.taskId)
        finally:
            PROFILE.reset(token)


async def test_a_task_is_cancelled_at_its_server(router: McpRouter) -> None:
    class Impatient(TaskClient):
        async def resolve(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
            await ask(context.session, "tasks/cancel", handle.taskId)
            self.states.append(await ask(context.session, "tasks/get", handle.taskId))
            return CallToolResult(content=[])

    extension = Impatient()
    async with connect_client(router, extensions=[extension]) as client:
        await work(client, "first", "endless")
    assert extension.states[0]["status"] == "cancelled"


async def test_a_client_without_tasks_gets_results(router: McpRouter) -> None:
    async with connect_client(router) as client:
        assert await work(client, "first") == "work without a task"
        # This server refuses clients without tasks, so the gateway waits for the task.
        assert await work(client, "strict", words="waited") == "waited"
        assert "no luck" in await work(client, "strict", "fail")
        assert "needs input" in await work(client, "strict", "ask")
        with pytest.raises(MCPError, match="it broke"):
            await work(client, "strict", "break")
        with pytest.raises(MCPError) as error:
            await ask(client.session, "tasks/get", "task_1")
        assert error.value.error.code == MISSING_CAPABILITY
    async with connect_client(router, "legacy") as client:
        assert await work(client, "strict", words="waited") == "waited"


async def test_a_task_that_takes_too_long_is_cancelled(router: McpRouter) -> None:
    async with connect_client(router) as client:
        assert "did not finish within 3 seconds" in await work(client, "strict", "endless")
    async with connect_task_client(router) as (patient, _):
        states = json.loads(await work(patient, "strict", "report"))
    assert list(states.values())[-1] == "cancelled"


async def test_a_script_waits_for_tasks() -> None:
    config = build_config(task_server("strict", requires=True), mode="search")
    config = replace(config, code_mode=CodeModeConfig(enabled=True))
    async with gateway(config) as running, connect_task_client(running) as (client, tasks):
        code = "await tools.strict.work(words='from a script')"
        assert "from a script" in await call_text(client, "run_code", {"code": code})
    assert not tasks.handles


class NotifiedTask(NotificationParams, extra="allow"):
    taskId: str
    status: str


class WatchingClient(TaskClient):
    """Leaves its tasks alone, and remembers the notifications about them."""

    def __init__(self) -> None:
        super().__init__()
        self.notified: list[dict[str, Any]] = []
        self.has_ended = anyio.Event()

    async def resolve(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        self.handles.append(handle)
        return CallToolResult(content=[])

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return (NotificationBinding(method="notifications/tasks", params_type=NotifiedTask, handler=self.remember),)

    async def remember(self, params: NotifiedTask) -> None:
        self.notified.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        if params.status != "working":
            self.has_ended.set()


async def listen_to_tasks(client: Client, ids: Sequence[object]) -> None:
    wanted = SubscriptionFilter.model_validate({"taskIds": ids})
    request = SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=wanted))
    await client.session.send_request(request, SubscriptionsListenResult)


async def test_states_of_tasks_are_sent_to_a_client_that_listens(router: McpRouter) -> None:
    watcher, acknowledged = WatchingClient(), list[Any]()

    async def keep(message: Any) -> None:
        if isinstance(message, SubscriptionsAcknowledgedNotification):
            acknowledged.append(message.params.notifications.model_extra)

    async with connect_client(router, extensions=[watcher], message_handler=keep) as client:
        await work(client, "first", words="finished")
        (handle,) = watcher.handles
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen_to_tasks, client, [handle.taskId, "task_of_nobody", 7])
            with anyio.fail_after(30):
                await watcher.has_ended.wait()
            tasks.cancel_scope.cancel()
    assert acknowledged == [{"taskIds": [handle.taskId]}]
    assert [state["status"] for state in watcher.notified] == ["working", "completed"]
    assert {state["taskId"] for state in watcher.notified} == {handle.taskId}
    assert watcher.notified[-1]["result"]["content"][0]["text"] == "finished"
    assert all("io.modelcontextprotocol/subscriptionId" in state["_meta"] for state in watcher.notified)


async def test_tasks_of_another_caller_are_not_reported(router: McpRouter) -> None:
    owner, stranger = WatchingClient(), WatchingClient()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect_client(router, extensions=[owner]))
        await work(client, "first")
        (handle,) = owner.handles
        tasks = await stack.enter_async_context(anyio.create_task_group())
        token = PROFILE.set("other")
        try:
            other = await stack.enter_async_context(connect_client(router, extensions=[stranger]))
            tasks.start_soon(listen_to_tasks, other, [handle.taskId])
        finally:
            PROFILE.reset(token)
        tasks.start_soon(listen_to_tasks, client, [handle.taskId])
        with anyio.fail_after(30):
            await owner.has_ended.wait()
        tasks.cancel_scope.cancel()
    assert stranger.notified == []


async def test_a_client_without_tasks_cannot_listen_to_them(router: McpRouter) -> None:
    async with connect_client(router) as client:
        with pytest.raises(MCPError) as error:
            await listen_to_tasks(client, ["task_1"])
        assert error.value.error.code == MISSING_CAPABILITY
