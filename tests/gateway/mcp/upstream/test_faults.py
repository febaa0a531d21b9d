"""Servers that crash, hang, lie, flood or send garbage, each with a working server in the same gateway."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
    script_server,
    wait_until,
)
from tests.support.gateway_process import run_process, wait_for, write_config
from tests.support.ports import find_free_port
from toolcrib.config.server_settings import ServerConfig
from toolcrib.core.tool_names import safe_name
from toolcrib.gateway.mcp.admin.api import list_server_status
from toolcrib.gateway.mcp.upstream import connection, health, stdio, supervisor

pytestmark = pytest.mark.anyio

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
NAMED = safe_name("bad___zwei Wörter")
GOOD = plain_server("good", ["echo"])


@pytest.fixture(autouse=True)
def shorten_grace_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "EXIT_GRACE_SECONDS", 0.3)


def faulty_server(kind: str, argument: str = "", **given: Any) -> ServerConfig:
    return script_server("bad", "faulty.py", kind, argument, **given)


async def call_error(connected: Any, tool: str, **arguments: Any) -> str:
    """Return the error text of a failing call."""
    result = await connected.call_tool(tool, arguments)
    assert result.is_error
    text: str = part_text(result.content[0])
    return text


async def check_good_server(connected: Any) -> None:
    """Check that the working server is not affected by the faulty one."""
    with anyio.fail_after(20):
        assert await call_text(connected, "good___echo", {"text": "fine"}) == "fine"


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_server_killed_in_a_call_is_reported_and_restarted(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    bad = plain_server("bad", ["die", "echo", "pid", "hang"], era)
    async with gateway(build_config(bad, GOOD)) as router, connect_client(router) as connected:
        async with anyio.create_task_group() as tasks:
            # Another call is in flight when the server is killed.
            answers: list[str] = []

            async def hang() -> None:
                answers.append(await call_error(connected, "bad___hang"))

            tasks.start_soon(hang)
            await wait_until(lambda: router.pool.servers["bad"].state == "in use")
            answers.append(await call_error(connected, "bad___die"))
        for answer in answers:
            assert answer.startswith("bad lost its connection during the call")
            assert "it is unknown whether the call had an effect" in answer
        await check_good_server(connected)
        await wait_until(lambda: router.pool.servers["bad"].connection)
        assert await call_text(connected, "bad___echo", {"text": "back"}) == "back"


async def test_call_right_after_a_crash_waits_for_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "HASTENED_START_SECONDS", 60)
    bad = plain_server("bad", ["die", "echo"])
    async with gateway(build_config(bad)) as router, connect_client(router) as connected:
        for _ in range(2):
            await call_error(connected, "bad___die")
            assert await call_text(connected, "bad___echo", {"text": "back"}) == "back"


async def test_read_only_call_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    bad = plain_server("bad", ["die_once"], mark=str(tmp_path / "mark"))
    async with gateway(build_config(bad)) as router, connect_client(router) as connected:
        assert await call_text(connected, "bad___die_once") == "alive"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process like that")
async def test_idle_unresponsive_server_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "HEALTH_CHECK_SECONDS", 0.3)
    monkeypatch.setattr(health, "PING_SECONDS", 0.3)
    async with gateway(build_config(plain_server("bad", ["pid"]))) as router, connect_client(router) as connected:
        before = int(await call_text(connected, "bad___pid"))
        os.kill(before, signal.SIGSTOP)
        await wait_until(lambda: router.pool.servers["bad"].failures, 60)
        with anyio.fail_after(60):
            while not (after := await call_text(connected, "bad___pid")).isdigit():
                await anyio.sleep(0.05)
        assert int(after) != before
        assert not is_running(before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process like that")
async def test_unresponsive_server_is_restarted_while_clients_keep_calling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PING_SECONDS", 0.3)
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    bad = plain_server("bad", ["pid"], given={"call_seconds": 1})
    async with gateway(build_config(bad)) as router, connect_client(router) as connected:
        before = int(await call_text(connected, "bad___pid"))
        os.kill(before, signal.SIGSTOP)
        with anyio.fail_after(60):
            while not (after := await call_text(connected, "bad___pid")).isdigit():
                pass
        assert int(after) != before


async def test_server_that_answers_pings_is_not_restarted_after_timeouts() -> None:
    bad = plain_server("bad", ["hang", "pid"], given={"call_seconds": 0.1})
    async with gateway(build_config(bad)) as router, connect_client(router) as connected:
        before = await call_text(connected, "bad___pid")
        for _ in range(2 * health.MAX_CONSECUTIVE_TIMEOUTS):
            await call_error(connected, "bad___hang")
        assert await call_text(connected, "bad___pid") == before


async def test_call_of_hanging_server_times_out() -> None:
    bad = plain_server("bad", ["hang", "echo"], given={"call_seconds": 0.3})
    async with gateway(build_config(bad, GOOD)) as router, connect_client(router) as connected:
        text = await call_error(connected, "bad___hang")
        assert text.startswith("bad did not answer within 0.3 seconds")
        assert "callSeconds" in text
        assert await call_text(connected, "bad___echo", {"text": "still"}) == "still"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("exits", "its program ended with exit code 1; last line on stderr: no token was given"),
        ("list_fails", "no list today"),
        ("mute", "did not answer in time"),
        ("future", "its protocol revision, 2099-01-01, is not supported; update it"),
    ],
)
async def test_failed_start_is_reported_and_does_not_affect_others(kind: str, says: str) -> None:
    bad = faulty_server(kind, connect_seconds=0.7)
    async with gateway(build_config(bad, GOOD), wait=False) as router, connect_client(router) as connected:
        await wait_until(lambda: router.pool.servers["good"].connection)
        await check_good_server(connected)
        await wait_until(lambda: router.pool.servers["bad"].failures)
        assert says in router.pool.unreachable_servers()["bad"]
        assert await list_tool_names(connected) == ["good___echo"]


async def test_error_of_node_is_quoted_and_not_its_version() -> None:
    crash = "import sys; sys.exit('throw new Error(1)\\n\\nTypeError: KEY is missing\\n    at x\\n\\nNode.js v22.1.0')"
    bad = ServerConfig("bad", command=sys.executable, args=("-c", crash))
    async with gateway(build_config(bad, GOOD)) as router:
        error = router.pool.unreachable_servers()["bad"]
        assert error == "its program ended with exit code 1; last line on stderr: TypeError: KEY is missing"


@pytest.mark.parametrize(
    ("command", "says"),
    [("toolcrib-no-such-program", "not found"), (__file__, "cannot be executed"), ("cat", "it is no MCP server")],
)
async def test_unusable_program_is_reported(command: str, says: str) -> None:
    async with gateway(build_config(ServerConfig("bad", command=command), GOOD)) as router:
        assert says in router.pool.unreachable_servers()["bad"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no such signals")
@pytest.mark.parametrize(("seconds", "quoted"), [(0, ""), (3600, "; last line on stderr: busy")])
async def test_error_has_the_exit_and_only_recent_stderr(
    seconds: float, quoted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STDERR_TAIL_SECONDS", seconds)
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 60)
    async with gateway(build_config(plain_server("bad", ["pid"]))) as router, connect_client(router) as connected:
        bad = router.pool.servers["bad"]
        bad.stderr_tail.add_output("busy\n")
        os.kill(int(await call_text(connected, "bad___pid")), signal.SIGKILL)
        await wait_until(lambda: bad.error)
        assert bad.error == f"its program was killed by SIGKILL{quoted}"


async def test_unlisted_server_is_named_in_an_empty_search_result() -> None:
    missing = ServerConfig("missing", command="no-such-program")
    async with gateway(build_config(missing, GOOD)) as router, connect_client(router) as connected:
        await wait_until(lambda: router.pool.servers["missing"].error)
        text = await call_text(connected, "search_tools", {"query": "play the trombone"})
        assert "The tools of missing are not known yet: its program or folder" in text
        text = await call_text(connected, "search_tools", {"query": "good___echo"})
        assert "missing" not in text
        text = await call_error(connected, "missing___echo")
        assert text.startswith("The tools of missing are not known yet: its program or folder")


async def test_unreachable_server_is_named_in_search_results() -> None:
    bad = plain_server("bad", ["lion"])
    async with gateway(build_config(bad, mode="search")) as router, connect_client(router) as connected:
        one = router.pool.servers["bad"]
        one.connection, one.failures, one.error = None, 1, "it said: no token"
        text = await call_text(connected, "search_tools", {"query": "lion"})
        assert "1 tool of bad cannot be called now: it said: no token." in text
        assert "bad is not reachable: it said: no token" in await call_error(connected, "bad___lion")


@pytest.mark.parametrize("kind", ["dies_on_probe", "deaf_to_probe"])
async def test_server_that_fails_the_probe_is_started_with_a_handshake(kind: str) -> None:
    async with gateway(build_config(faulty_server(kind, connect_seconds=1.5))) as router:
        link = router.pool.servers["bad"].connection
        assert link is not None
        assert link.protocol == "2025-11-25"
        async with connect_client(router) as connected:
            assert await call_text(connected, "bad___echo") == "here"


async def test_invalid_lines_on_stdout_are_ignored() -> None:
    async with gateway(build_config(faulty_server("noise"))) as router, connect_client(router) as connected:
        assert await call_text(connected, "bad___echo") == "here"


async def test_endless_line_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 1_000_000)
    bad = faulty_server("endless_line", connect_seconds=60, max_result_bytes=400_000)
    async with gateway(build_config(bad, GOOD)) as router, connect_client(router) as connected:
        assert router.pool.servers["bad"].connection is None
        assert router.pool.unreachable_servers()["bad"].startswith("it sent a message without an end")
        await check_good_server(connected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("half_emoji", "a � b"),
        ("invalid_utf8", "a �� b"),
        ("control_characters", "a   b"),
        ("pair", "a 😀 b \\ud83d"),
        ("byte_order_mark", "marked"),
    ],
)
async def test_answer_with_invalid_characters_is_repaired(kind: str, expected: str) -> None:
    async with gateway(build_config(faulty_server(kind))) as router, connect_client(router) as connected:
        with anyio.fail_after(30):
            assert await call_text(connected, "bad___echo") == expected


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("deep", "sent an answer that cannot be read: it is nested too deeply"),
        ("truncated", "sent an answer that cannot be read: it is not valid JSON"),
        ("no_object", "sent an answer that cannot be read: it is not a JSON-RPC message"),
        ("text_content", "sent an answer that cannot be read: its content is not a list"),
        ("number_as_text", "sent an answer that cannot be read: a text in its content is not a string"),
        ("batch", "sent an answer that cannot be read: it is a batch of messages"),
        ("decimal_id", "sent an answer that cannot be read: it is not a JSON-RPC message"),
        ("large", "has more than 8,388,608 bytes"),
        ("large_id_last", "has more than 8,388,608 bytes"),
        ("largest", "has more than 8,388,608 bytes"),
    ],
)
async def test_unreadable_answer_fails_its_call_at_once(
    kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "large":
        monkeypatch.setattr(connection, "MAX_LINE_BYTES", 1_000_000)
    config = build_config(faulty_server(kind), GOOD)
    async with gateway(config) as router, connect_client(router) as connected:
        link = router.pool.servers["bad"].connection
        with anyio.fail_after(60):
            assert reason in await call_error(connected, "bad___echo")
            assert await call_text(connected, "bad___pid") == "here"
        assert router.pool.servers["bad"].connection is link


@pytest.mark.parametrize(("revision", "structured"), [("legacy", {"result": [2]}), (STATELESS, [2])])
async def test_result_that_strict_clients_refuse_is_repaired(revision: str, structured: Any) -> None:
    config = build_config(faulty_server("null_members"))
    async with gateway(config) as router, connect_client(router, revision) as connected:
        result = await connected.call_tool("bad___echo", {})
        assert (result.content, result.is_error, result.structured_content) == ([], False, structured)


async def test_long_error_of_a_server_is_cut() -> None:
    async with gateway(build_config(faulty_server("long_error"))) as router, connect_client(router) as connected:
        with pytest.raises(MCPError, match=r"^e{10000}… \(40,000 more characters\)$"):
            await connected.call_tool("bad___echo", {})


async def test_notification_flood_does_not_block_others() -> None:
    heard: list[Any] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    async with (
        gateway(build_config(faulty_server("floods"), GOOD)) as router,
        connect_client(router, "legacy", message_handler=on_message) as connected,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connected.call_tool, "bad___echo", {})
            await check_good_server(connected)
        await check_good_server(connected)
        await wait_until(lambda: router.pool.servers["bad"].in_flight.forwarding_count == 0)
    # Unknown notifications are not forwarded, and the list is not read for every notification.
    assert set(heard) <= {"notifications/message"}


async def test_error_of_a_server_is_forwarded_unchanged() -> None:
    async with gateway(build_config(faulty_server("lies"), GOOD)) as router, connect_client(router) as connected:
        with pytest.raises(Exception, match="Unknown tool: echo"):
            await connected.call_tool("bad___echo", {})
        await check_good_server(connected)


@pytest.mark.parametrize("kind", ["huge_description", "huge_schema"])
async def test_oversized_definition_is_left_out(kind: str) -> None:
    config = build_config(faulty_server(kind, connect_seconds=60), GOOD)
    async with gateway(config) as router, connect_client(router) as connected:
        await check_good_server(connected)
        assert await list_tool_names(connected) == ["bad___small", "good___echo"]
        (manifest, _) = router.hub.store.list_manifests().values()
        assert len(manifest.tools) == 1
        # The problem is also reported from stored manifests.
        why = "tool 1 (echo) has more than 4,194,304 bytes"
        assert router.hub.directory.servers[0].problems == manifest.problems == (why,)
        assert list_server_status(router, router.hub.get_view())[0]["faults"] == [why]
        found = await call_text(connected, "search_tools", {"query": "paint the town"})
        assert f"Some tools of bad cannot be used: {why}" in found


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_invalid_tool_does_not_affect_others(era: str) -> None:
    async with gateway(build_config(faulty_server("bad_tools"))) as router, connect_client(router, era) as connected:
        listed = (await connected.list_tools()).tools
        assert [tool.name for tool in listed] == [
            "bad___no_schema",
            "bad___null_schema",
            "bad___bad_schema",
            NAMED,
            "bad___deep",
            "bad___wrong_type",
            "bad___odd_type",
            "bad___odd_icons",
            "bad___odd_output",
            "bad___echo",
        ]
        problems = router.hub.directory.servers[0].problems
        assert any("an earlier tool has the same name 'echo'" in problem for problem in problems)
        assert "tool 1 is not an object" in problems
        # Fields that strict clients reject are removed and reported.
        (status,) = list_server_status(router, router.hub.get_view())
        assert [repair.partition(" is used without its invalid ")[2] for repair in status["altered"]] == [
            "description",
            "execution, icons",
            "outputSchema",
        ]
        assert await call_text(connected, NAMED) == "here"


@pytest.mark.parametrize("kind", ["not_a_list", "endless_pages"])
async def test_invalid_and_endless_lists(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("toolcrib.gateway.mcp.upstream.connection.MAX_PAGES", 50)
    async with gateway(build_config(faulty_server(kind), GOOD)) as router, connect_client(router) as connected:
        await check_good_server(connected)
        count = {"not_a_list": 1, "endless_pages": 2}[kind]
        assert len(await list_tool_names(connected)) == count


@pytest.mark.parametrize("kind", ["garbage", "half_line"])
async def test_invalid_responses(kind: str) -> None:
    config = build_config(faulty_server(kind, call_seconds=0.5), GOOD)
    async with gateway(config) as router, connect_client(router) as connected:
        text = await call_error(connected, "bad___echo")
        assert text.startswith("bad ")
        await check_good_server(connected)


async def test_unrequested_responses_are_dropped() -> None:
    async with gateway(build_config(faulty_server("not_a_result"))) as router, connect_client(router) as connected:
        for _ in range(3):
            assert await call_text(connected, "bad___echo") == "here"


async def test_crashing_server_is_restarted_with_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.02)
    async with gateway(build_config(faulty_server("dies_after_list"), GOOD)) as router:
        bad = router.pool.servers["bad"]
        await wait_until(lambda: bad.recent_failures >= 4)
        async with connect_client(router) as connected:
            await check_good_server(connected)


async def test_call_ends_the_pause_before_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    folder = tmp_path / "later"
    config = plain_server("bad", ["echo"], given={"cwd": str(folder)})
    async with gateway(build_config(config)) as router, connect_client(router) as connected:
        bad = router.pool.servers["bad"]
        # The pause is a minute now.
        bad.recent_failures = 16
        await wait_until(lambda: bad.recent_failures > 16)
        folder.mkdir()
        with anyio.fail_after(30):
            while (await connected.call_tool("bad___echo", {"text": "back"})).is_error:
                await anyio.sleep(0.05)


async def test_start_is_one_log_line_and_stderr_has_its_own_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolcrib")
    chatty = faulty_server("chatty", env={"API_TOKEN": "hush-hush-hush"})
    config = replace(build_config(chatty), store=f"sqlite:///{tmp_path / 'crib.db'}")
    async with gateway(config) as router, connect_client(router) as connected:
        await connected.call_tool("bad___echo", {})
    lines = [
        record.getMessage() for record in caplog.records if record.name.startswith("toolcrib.gateway.mcp.upstream")
    ]
    assert lines == ["bad is started: 1 tool, protocol 2025-11-25"]
    log = tmp_path / "crib.logs" / "bad.log"
    assert "my token is [redacted]" in log.read_text()
    if sys.platform != "win32":
        assert log.stat().st_mode & 0o077 == 0


def test_log_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_LOG_BYTES", 1_000)
    log = stdio.ServerLogFile(tmp_path, "bad/../name")
    for number in range(200):
        log.write_line(f"line {number}")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_200
    assert "line 199" in log.path.read_text()
    assert log.path.parent == tmp_path


async def test_hanging_starts_do_not_block_other_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "START_SLOT_SECONDS", 0.2)
    slow = [script_server(f"slow{n}", "faulty.py", "mute", connect_seconds=60) for n in range(6)]
    async with gateway(build_config(*slow, GOOD), wait=False) as router:
        with anyio.fail_after(20):
            await wait_until(lambda: router.pool.servers["good"].connection)
        assert not any(router.pool.servers[one.name].failures for one in slow)


@pytest.mark.parametrize("kind", ["tree", pytest.param("daemon", marks=LINUX_ONLY)])
async def test_stopping_a_server_kills_its_children(kind: str, tmp_path: Path) -> None:
    note = tmp_path / "child"
    async with gateway(build_config(faulty_server(kind, str(note)))) as router:
        assert router.pool.servers["bad"].connection
        child = int(note.read_text())
        assert is_running(child)
    await wait_until(lambda: not is_running(child))


@LINUX_ONLY
async def test_children_of_a_killed_gateway_are_killed_by_the_next_one(tmp_path: Path) -> None:
    note, log = tmp_path / "child", tmp_path / "serve.log"
    bad = faulty_server("daemon", str(note))
    server = {"command": bad.command, "args": list(bad.args)}
    path = write_config(tmp_path, {"mcpServers": {"bad": server}, "store": "sqlite://"})
    command = [sys.executable, "-m", "toolcrib", "serve", "--config", str(path), "--port", str(find_free_port())]
    with run_process(command, log) as process:
        await anyio.to_thread.run_sync(wait_for, lambda: note.exists() and note.read_text(), process, log)
        child = int(note.read_text())
        async with gateway(build_config(GOOD)):
            assert is_running(child)
        process.kill()
    assert is_running(child)
    async with gateway(build_config(GOOD)):
        await wait_until(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat")
        if stat.parent.exists():
            return stat.read_text().rpartition(")")[2].split()[0] != "Z"
        os.kill(pid, 0)
        return not Path("/proc").exists()
    return False
