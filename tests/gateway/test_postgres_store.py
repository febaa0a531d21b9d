"""Gateways with a store in PostgreSQL: what they share, and what happens while the server is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.gateway.serving import GatewayProcess, running_gateway, server_entry, wait_until, write_json
from tests.support.postgres import PostgresServer
from toolcrib.cli.main import toolcrib
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter

ADMIN = "the-key-of-the-admin"


@contextmanager
def run_gateway(folder: Path, url: str) -> Iterator[GatewayProcess]:
    folder.mkdir(exist_ok=True)
    config = {
        "mcpServers": {"office": server_entry("echo", "ask")},
        "auth": {"keys": [{"key": ADMIN, "name": "admin"}]},
        "toolSearch": {"mode": "search"},
        "store": "${STORE_URL}",
    }
    path = write_json(folder / "toolcrib.json", config)
    with running_gateway(folder, "--config", str(path), STORE_URL=url) as gateway:
        wait_until(lambda: gateway.servers(ADMIN)["office"]["tools"])
        yield gateway


def call_tool(gateway: GatewayProcess, name: str, key: str = ADMIN, **arguments: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return gateway.request("/mcp", key, body, User_Agent="tester/1.0").json


def test_gateways_share_keys_profiles_approvals_and_usage(tmp_path: Path, postgres_url: str) -> None:
    with run_gateway(tmp_path / "one", postgres_url) as one, run_gateway(tmp_path / "two", postgres_url) as two:
        created = one.request("/api/keys", ADMIN, {"name": "phone", "profile": None}).json
        wait_until(lambda: two.request("/api/servers", created["key"]).status == 200)
        assert one.request("/api/profiles", ADMIN, {"name": "team", "servers": ["office"]}).status == 200
        wait_until(lambda: "team" in two.request("/api/profiles", ADMIN).text)
        for gateway in (one, two, two):
            assert "hello" in str(call_tool(gateway, "office___echo", text="hello"))
        with closing(open_store(postgres_url)) as store:
            wait_until(lambda: sum(total.calls for total in store.get_usage().values()) == 3)
            wait_until(lambda: len(store.list_audit(AuditFilter(action="call"), 10)) == 3)


def test_commands_use_the_store(tmp_path: Path, postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store:
        store.put_pins("mail", [Pin("send", "1", {}, "changed", 0.0, {"name": "send"}, "2")])
        runner = CliRunner()
        result = runner.invoke(toolcrib, ["approve", "--store", postgres_url, "mail___send"])
        assert result.exit_code == 0, result.output
        assert "1 tool approved" in result.output
        assert store.list_quarantined() == {}
    config = write_json(tmp_path / "toolcrib.json", {"mcpServers": {}, "store": postgres_url})
    result = runner.invoke(toolcrib, ["audit", "--config", str(config), "--json"])
    assert result.exit_code == 0, result.output
    assert '"change": "approved"' in result.output
    result = runner.invoke(toolcrib, ["audit", "--store", "postgresql://me:s3cret@127.0.0.1:1/db"])
    assert result.exit_code != 0
    assert "PostgreSQL cannot be reached" in result.output and "s3cret" not in result.output


def test_gateway_works_while_the_server_is_away_and_writes_everything_after(
    tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    with run_gateway(tmp_path, postgres_url) as gateway:
        assert gateway.request("/ready").json == {"status": "ready", "store": "ok"}
        call_tool(gateway, "office___echo", text="before")
        postgres_server.stop()
        try:
            wait_until(lambda: gateway.request("/ready").json == {"status": "ready", "store": "unavailable"})
            for _ in range(20):
                assert "during" in str(call_tool(gateway, "office___echo", text="during"))
            assert "office___echo" in str(call_tool(gateway, "search_tools", query="echo a text"))
            assert "approvals, keys and profiles cannot be changed" in gateway.request("/health", ADMIN).text
            assert "PostgreSQL" in str(gateway.request("/api/overview", ADMIN).json["notices"])
            assert gateway.request("/api/stats", ADMIN).json["counts"]
            assert "toolcrib_tools{" in gateway.request("/metrics", ADMIN).text
            for path, body in (
                ("/api/keys", {"name": "phone", "profile": None}),
                ("/api/profiles", {"name": "team", "servers": ["office"]}),
                ("/api/decisions/approve", {"server": "office"}),
            ):
                reply = gateway.request(path, ADMIN, body)
                assert (path, reply.status) == (path, 503)
                assert "was not completed; try again later" in reply.json["error"]
        finally:
            postgres_server.start()
        wait_until(lambda: gateway.request("/ready").json["store"] == "ok")
        assert gateway.request("/api/keys", ADMIN, {"name": "phone", "profile": None}).status == 200
        with closing(open_store(postgres_url)) as store:
            wait_until(lambda: sum(total.calls for total in store.get_usage().values()) == 21)
            wait_until(lambda: len(store.list_audit(AuditFilter(action="call"), 100)) == 21)
            wait_until(lambda: sum(each.amount for each in store.list_series("day", 0.0) if each.name == "calls") == 21)
            assert [key.name for key in store.list_keys()] == ["phone"]
            assert len(store.list_audit(AuditFilter(action="call"), 100)) == 21
        wait_until(lambda: gateway.request("/health", ADMIN).json["status"] == "ok")


def test_doctor_checks_the_store(tmp_path: Path, postgres_url: str) -> None:
    runner = CliRunner()
    entry = {"mcpServers": {"office": server_entry("echo")}}
    config = write_json(tmp_path / "toolcrib.json", {**entry, "store": postgres_url})
    result = runner.invoke(toolcrib, ["doctor", "--config", str(config)])
    assert result.exit_code == 0, result.output
    write_json(config, {**entry, "store": "postgresql://me:s3cret@127.0.0.1:1/db"})
    result = runner.invoke(toolcrib, ["doctor", "--config", str(config)])
    assert result.exit_code == 1
    assert "PostgreSQL cannot be reached" in result.output and "start it, or correct `store`" in result.output
    assert "s3cret" not in result.output
