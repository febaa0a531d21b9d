"""Stateful servers run per session, per user or shared; instances are limited and stopped."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.gateway.mcp.harness import (
    PROFILE,
    build_config,
    call_text,
    connect_client,
    gateway,
    part_text,
    plain_server,
    upstreams,
    wait_until,
)
from toolcrib.config.settings import AccessProfile

pytestmark = pytest.mark.anyio


def build(**given: Any) -> Any:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pid", "hang")]
    return build_config(plain_server("state", tools, given=given), profiles=[AccessProfile("a"), AccessProfile("b")])


async def test_each_session_has_its_own_instance_until_it_ends() -> None:
    async with gateway(build(instances="session")) as router:
        async with connect_client(router, "legacy") as first, connect_client(router, "legacy") as second:
            pids = [await call_text(client, "state___pid") for client in (first, second, first, second)]
            assert pids[0] != pids[1]
            assert pids[:2] == pids[2:]
            assert router.pool.instances.count("state") == 2
        await wait_until(lambda: router.pool.instances.count("state") == 0)
        # The gateway's own connection, which lists the tools, is another one.
        assert upstreams(router)[0].connection


async def test_each_user_has_one_instance_in_all_sessions() -> None:
    async with gateway(build(instances="user")) as router:
        pids: dict[str, set[str]] = {"a": set(), "b": set()}
        try:
            for profile in ("a", "b", "a"):
                PROFILE.set(profile)
                for revision in ("legacy", "2026-07-28"):
                    async with connect_client(router, revision) as client:
                        pids[profile].add(await call_text(client, "state___pid"))
        finally:
            PROFILE.set(None)
        assert len(pids["a"]) == len(pids["b"]) == 1
        assert pids["a"] != pids["b"]


async def test_shared_server_has_no_instances() -> None:
    async with gateway(build()) as router:
        async with connect_client(router, "legacy") as first, connect_client(router, "legacy") as second:
            assert await call_text(first, "state___pid") == await call_text(second, "state___pid")
        assert router.pool.instances.count("state") == 0


async def test_idle_instances_are_stopped_and_their_number_is_limited() -> None:
    config = build(instances="session", idle_seconds=0.05, max_instances=1)
    async with (
        gateway(config) as router,
        connect_client(router, "legacy") as first,
        connect_client(router, "legacy") as second,
    ):
        before = await call_text(first, "state___pid")
        # The second session takes the only place.
        assert await call_text(second, "state___pid") != before
        assert router.pool.instances.count("state") == 1

        def is_idle() -> bool:
            router.pool.instances.remove_idle()
            return router.pool.instances.count("state") == 0

        await wait_until(is_idle)
        assert await call_text(first, "state___pid") != before


async def test_busy_instances_are_not_stopped_for_others() -> None:
    config = build(instances="session", max_instances=1, call_seconds=300)
    async with (
        gateway(config) as router,
        connect_client(router, "legacy") as first,
        connect_client(router, "legacy") as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.call_tool, "state___hang", {})
        await wait_until(lambda: router.pool.servers["state"].call_count)
        result = await second.call_tool("state___pid", {})
        assert result.is_error
        assert "raise `maxInstances`" in part_text(result.content[0])
        tasks.cancel_scope.cancel()


async def test_calls_that_wait_for_their_instance_keep_it() -> None:
    config = build(instances="session", max_instances=1)
    async with (
        gateway(config) as router,
        connect_client(router, "legacy") as first,
        connect_client(router, "legacy") as second,
        anyio.create_task_group() as tasks,
    ):
        results: list[Any] = []

        async def call(client: Any) -> None:
            results.append(await client.call_tool("state___pid", {}))

        # The instance of the first call is still starting when the second call arrives.
        tasks.start_soon(call, first)
        tasks.start_soon(call, second)
        with anyio.fail_after(60):
            await wait_until(lambda: len(results) == 2)
    texts = [part_text(result.content[0]) for result in results]
    assert sorted(result.is_error for result in results) == [False, True]
    assert any("raise `maxInstances`" in text for text in texts)
