"""Skills of a real FastMCP server, seen by a real FastMCP client through the gateway; and MCP Apps."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.skills import SkillsClientExtension
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import STATELESS, build_config, connect_client, gateway, list_tool_names, plain_server
from tests.gateway.serving import running_gateway, wait_until, write_json
from toolcrib.hub.view import MAX_LISTED_APPS

pytestmark = pytest.mark.anyio

SERVER = """\
import sys
from pathlib import Path
from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

provider = SkillsDirectoryProvider(Path(sys.argv[1]), experimental_skills=True)
server = FastMCP("skilled")
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))

@server.tool
def ping() -> str:
    return "pong"

server.run(show_banner=False)
"""
SKILL = "---\nname: {name}\ndescription: {description}\n---\n\n# Steps\n"


def _write_skill(folder: Path, name: str, description: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(SKILL.format(name=name, description=description), encoding="utf-8")


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A client of a gateway with two servers; both have the skill `refunds`, and one has another."""
    folder = tmp_path_factory.mktemp("skills")
    script = folder / "server.py"
    script.write_text(SERVER, encoding="utf-8")
    for server in ("first", "second"):
        _write_skill(folder / server, "refunds", f"How {server} handles refunds.")
    _write_skill(folder / "second", "invoices", "How to write an invoice.")
    entries = {
        server: {"command": sys.executable, "args": [str(script), str(folder / server)], "connectSeconds": 300}
        for server in ("first", "second")
    }
    write_json(folder / "toolcrib.json", {"mcpServers": entries})
    with running_gateway(folder) as served:
        wait_until(lambda: all(one["state"] == "started" for one in served.servers().values()))
        async with Client(f"{served.url}/mcp", extensions=[SkillsClientExtension()]) as connected:
            yield connected


async def test_skills_of_all_servers_are_listed_read_and_returned(client: Any) -> None:
    skills = {skill.frontmatter.root["name"]: skill for skill in await client.list_skills()}
    assert set(skills) == {"refunds", "invoices"}
    # Both servers have this URI; the first server of the configuration keeps it.
    assert skills["refunds"].frontmatter.root["description"] == "How first handles refunds."
    invoices = skills["invoices"]
    assert (await client.get_skill(invoices.uri)) == invoices
    content = await client.read_resource(invoices.uri)
    assert "How to write an invoice." in content[0].text


async def test_an_unknown_skill_is_an_error_of_the_parameters(client: Any) -> None:
    with pytest.raises(MCPError, match="Skill not found") as error:
        await client.get_skill("skill://none/SKILL.md")
    assert error.value.error.code == -32602


def _app(name: str, meta: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": name, "inputSchema": {"type": "object"}, "_meta": meta}


async def test_tools_of_mcp_apps_stay_listed() -> None:
    apps = [
        _app("chart", {"ui": {"resourceUri": "ui://chart/view.html"}}),
        _app("refresh", {"ui": {"visibility": ["app"]}}),
        _app("old", {"ui/resourceUri": "ui://old.html"}),
        _app("widget", {"openai/outputTemplate": "ui://widget.html"}),
    ]
    others = [_app("plain", {}), _app("web", {"ui": {"resourceUri": "https://example.com"}}), _app("odd", {"ui": 1})]
    config = build_config(plain_server("apps", [*others, *apps], STATELESS), mode="search")
    async with gateway(config) as router, connect_client(router) as connected:
        listed = (await list_tool_names(connected))[3:]
        definitions = {tool.name: tool for tool in (await connected.list_tools()).tools}
    assert sorted(listed) == ["apps___chart", "apps___old", "apps___refresh", "apps___widget"]
    assert definitions["apps___chart"].meta == {"ui": {"resourceUri": "ui://chart/view.html"}}


async def test_the_number_of_listed_apps_is_limited() -> None:
    apps = [_app(f"chart{number}", {"ui": {"resourceUri": "ui://x"}}) for number in range(MAX_LISTED_APPS + 5)]
    async with (
        gateway(build_config(plain_server("apps", apps), mode="search")) as router,
        connect_client(router) as one,
    ):
        assert len((await list_tool_names(one))[3:]) == MAX_LISTED_APPS
