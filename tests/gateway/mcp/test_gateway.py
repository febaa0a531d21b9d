"""Background tasks of the MCP gateway."""

from __future__ import annotations

from toolcrib.gateway.mcp.gateway import MAX_ENCODED_PER_STEP, MIN_ENCODED_PER_STEP, choose_next_step


def test_stored_vectors_are_read_in_growing_steps() -> None:
    step = MIN_ENCODED_PER_STEP
    for _ in range(20):
        step = choose_next_step(step, 0.01, 100_000)
    assert step == MAX_ENCODED_PER_STEP


def test_new_tools_are_encoded_in_small_steps_so_that_the_gateway_can_stop() -> None:
    # After slow steps, and after the gateway had nothing to encode.
    assert choose_next_step(MAX_ENCODED_PER_STEP, 2.0, 1_000) == MIN_ENCODED_PER_STEP
    assert choose_next_step(MAX_ENCODED_PER_STEP, 0.0, 0) == MIN_ENCODED_PER_STEP
