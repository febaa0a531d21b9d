"""Background tasks of the MCP gateway."""

from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import build_config, gateway, plain_server, wait_until
from toolcrib.errors import InvalidStore
from toolcrib.gateway import audit
from toolcrib.gateway.mcp.gateway import MAX_ENCODED_PER_STEP, MIN_ENCODED_PER_STEP, choose_next_step
from toolcrib.storage.store import Store


def test_stored_vectors_are_read_in_growing_steps() -> None:
    step = MIN_ENCODED_PER_STEP
    for _ in range(20):
        step = choose_next_step(step, 0.01, 100_000)
    assert step == MAX_ENCODED_PER_STEP


def test_new_tools_are_encoded_in_small_steps_so_that_the_gateway_can_stop() -> None:
    # After slow steps, and after the gateway had nothing to encode.
    assert choose_next_step(MAX_ENCODED_PER_STEP, 2.0, 1_000) == MIN_ENCODED_PER_STEP
    assert choose_next_step(MAX_ENCODED_PER_STEP, 0.0, 0) == MIN_ENCODED_PER_STEP


@pytest.mark.anyio
async def test_a_full_disk_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        attempts.append(1)
        raise InvalidStore("the disk is full")

    async with gateway(build_config(plain_server("files"))) as router:
        with monkeypatch.context() as patched:
            patched.setattr(audit, "FLUSH_SECONDS", 0.001)
            patched.setattr(Store, "add_calls", refuse)
            router.hub.add_counts(searches=1)
            await wait_until(lambda: len(attempts) > 3)
    assert [record.getMessage() for record in caplog.records].count("the disk is full") == 1
