"""Quotas of access profiles: what is counted, when it is refused, and the use on other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from toolcrib.config.settings import AccessProfile
from toolcrib.errors import QuotaExceeded
from toolcrib.gateway.quotas import MAX_WAITING_REQUESTS, TENANT_SECONDS, FairQueue, ProfileQuotas, QuotaUse


def at(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def run_call(quotas: ProfileQuotas, profile: AccessProfile) -> None:
    with quotas.track_call(profile):
        pass


def test_calls_over_the_rate_are_refused_until_the_next_minute() -> None:
    clock = [60.0]
    quotas = ProfileQuotas(lambda: clock[0])
    team = AccessProfile("team", calls_per_minute=2)
    for _ in range(2):
        run_call(quotas, team)
    clock[0] = 75.0
    with pytest.raises(QuotaExceeded, match="callsPerMinute") as refused:
        run_call(quotas, team)
    assert refused.value.retry_after_seconds == 45
    clock[0] += refused.value.retry_after_seconds
    run_call(quotas, team)


def test_profiles_do_not_share_their_quotas() -> None:
    quotas = ProfileQuotas(at(0))
    run_call(quotas, AccessProfile("a", calls_per_minute=1))
    run_call(quotas, AccessProfile("b", calls_per_minute=1))
    with pytest.raises(QuotaExceeded, match="'a'"):
        run_call(quotas, AccessProfile("a", calls_per_minute=1))


def test_a_call_that_ends_or_fails_makes_room_for_another() -> None:
    quotas = ProfileQuotas(at(0))
    team = AccessProfile("team", max_concurrent_calls=1)
    with pytest.raises(RuntimeError), quotas.track_call(team):
        with pytest.raises(QuotaExceeded, match="maxConcurrentCalls") as refused:
            run_call(quotas, team)
        assert refused.value.retry_after_seconds == 1
        raise RuntimeError
    run_call(quotas, team)


def test_result_bytes_refuse_the_next_call() -> None:
    quotas = ProfileQuotas(at(0))
    team = AccessProfile("team", result_bytes_per_minute=1024)
    run_call(quotas, team)
    quotas.add_result(team, {"content": [{"type": "text", "text": "x" * 2_000}]})
    with pytest.raises(QuotaExceeded, match="resultBytesPerMinute"):
        run_call(quotas, team)


def test_searches_have_a_quota_of_their_own() -> None:
    quotas = ProfileQuotas(at(0))
    team = AccessProfile("team", searches_per_minute=1, calls_per_minute=1)
    quotas.count_search(team)
    run_call(quotas, team)
    with pytest.raises(QuotaExceeded, match="searchesPerMinute"):
        quotas.count_search(team)


def test_a_profile_without_quotas_is_not_counted() -> None:
    quotas = ProfileQuotas(at(0))
    run_call(quotas, AccessProfile(""))
    quotas.count_search(AccessProfile(""))
    quotas.add_result(AccessProfile(""), {})
    assert quotas.list_use() == {}


def test_the_use_on_other_replicas_counts() -> None:
    quotas = ProfileQuotas(at(120))
    team = AccessProfile("team", calls_per_minute=10, max_concurrent_calls=3)
    quotas.elsewhere = {"team": QuotaUse(window=2, calls=9, running=1)}
    run_call(quotas, team)
    with pytest.raises(QuotaExceeded, match="callsPerMinute"):
        run_call(quotas, team)
    assert quotas.list_use() == {"team": QuotaUse(window=2, calls=1)}


def test_the_use_on_other_replicas_in_an_earlier_minute_does_not_count() -> None:
    quotas = ProfileQuotas(at(120))
    team = AccessProfile("team", calls_per_minute=1, max_concurrent_calls=2)
    quotas.elsewhere = {"team": QuotaUse(window=1, calls=9, running=2)}
    with pytest.raises(QuotaExceeded, match="maxConcurrentCalls"):
        run_call(quotas, team)
    quotas.elsewhere = {"team": QuotaUse(window=1, calls=9)}
    run_call(quotas, team)


def test_profiles_without_recent_use_are_forgotten() -> None:
    clock = [0.0]
    quotas = ProfileQuotas(lambda: clock[0])
    run_call(quotas, AccessProfile("team", calls_per_minute=1))
    clock[0] = 60.0
    assert quotas.list_use() == {}


async def keep_loop_busy() -> None:
    """Let the event loop work for long enough that no check finds it idle."""
    while True:
        sum(range(100_000))
        await asyncio.sleep(0)


async def run_steps(count: int) -> None:
    """Let other tasks run this many steps."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_the_requests_of_a_tenant_that_is_alone_do_not_wait() -> None:
    queue = FairQueue()
    async with asyncio.timeout(30):
        assert not any([(await queue.enter("a")).has_waited for _ in range(100)])


@pytest.mark.anyio
async def test_a_tenant_with_many_requests_waits_and_another_one_does_not() -> None:
    queue, busy = FairQueue(), asyncio.create_task(keep_loop_busy())
    first = await queue.enter("a")
    assert not (await queue.enter("b")).has_waited
    waiting = [asyncio.create_task(queue.enter("a")) for _ in range(2)]
    await run_steps(10)
    assert not any(task.done() for task in waiting)
    queue.leave(first)
    assert (await waiting[0]).has_waited and not waiting[1].done()
    queue.leave(waiting[0].result())
    assert (await waiting[1]).has_waited
    busy.cancel()


@pytest.mark.anyio
async def test_requests_that_wait_for_a_server_make_room_for_others() -> None:
    queue = FairQueue()
    await queue.enter("b")
    async with asyncio.timeout(30):
        turns = [await queue.enter("a") for _ in range(5)]
    assert turns[1].has_waited
    for turn in turns:
        queue.leave(turn)


@pytest.mark.anyio
async def test_requests_that_run_for_long_make_room_on_a_busy_loop() -> None:
    queue, busy = FairQueue(), asyncio.create_task(keep_loop_busy())
    await queue.enter("b")
    async with asyncio.timeout(30):
        await queue.enter("a")
        assert (await queue.enter("a")).has_waited
    busy.cancel()


@pytest.mark.anyio
async def test_a_tenant_without_recent_requests_is_forgotten() -> None:
    clock = [0.0]
    queue = FairQueue(lambda: clock[0])
    await queue.enter("b")
    await queue.enter("a")
    clock[0] = TENANT_SECONDS
    assert not any([(await queue.enter("a")).has_waited for _ in range(5)])


@pytest.mark.anyio
async def test_a_cancelled_request_passes_its_turn_on() -> None:
    queue, busy = FairQueue(), asyncio.create_task(keep_loop_busy())
    await queue.enter("b")
    first = await queue.enter("a")
    waiting = [asyncio.create_task(queue.enter("a")) for _ in range(3)]
    await run_steps(10)
    waiting[0].cancel()
    queue.leave(first)
    # Its turn has come, but it has not run.
    waiting[1].cancel()
    assert (await waiting[2]).has_waited
    busy.cancel()


@pytest.mark.anyio
async def test_too_many_waiting_requests_are_refused() -> None:
    queue, busy = FairQueue(), asyncio.create_task(keep_loop_busy())
    await queue.enter("b")
    await queue.enter("a")
    waiting = [asyncio.create_task(queue.enter("a")) for _ in range(MAX_WAITING_REQUESTS)]
    await asyncio.sleep(0)
    with pytest.raises(QuotaExceeded, match="requests wait already") as refused:
        await queue.enter("a")
    assert refused.value.retry_after_seconds == 1
    for task in [busy, *waiting]:
        task.cancel()
