"""Published MCP servers from npm and PyPI, each with one harmless call."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.npm import INSTALL_SECONDS, node_binary

FOLDER: Final = "{folder}"


@dataclass(frozen=True)
class RealServer:
    """A published server with a call that changes nothing.

    Without a network and valid keys, calls often return an error of the server.
    `works` is set where the call succeeds anyway.
    """

    name: str
    package: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    works: bool = False

    @property
    def is_python(self) -> bool:
        """Whether the server comes from PyPI."""
        return "==" in self.package

    def program(self, installed: Path) -> Path:
        """Return the program of a server from PyPI."""
        return installed / self.name / "bin" / self.package.partition("==")[0]

    def config(self, modules: Path, python: Path, folder: Path) -> dict[str, Any]:
        """Return the configuration entry of the server."""
        args = [arg.replace(FOLDER, str(folder)) for arg in self.args]
        env = {name: value.replace(FOLDER, str(folder)) for name, value in self.env.items()}
        common = {"env": env, "connectSeconds": 600, "callSeconds": 300}
        if self.is_python:
            return {"command": str(self.program(python)), "args": args, **common}
        package = modules / self.package.rpartition("@")[0]
        programs = json.loads((package / "package.json").read_text(encoding="utf-8"))["bin"]
        program = package / (programs if isinstance(programs, str) else next(iter(programs.values())))
        return {"command": node_binary(modules), "args": [str(program), *args], **common}

    def call_arguments(self, folder: Path) -> dict[str, Any]:
        """Return the arguments of the call."""
        text = json.dumps(dict(self.arguments)).replace(FOLDER, str(folder))
        arguments: dict[str, Any] = json.loads(text)
        return arguments


NO_KEY: Final = "none"
# The files in the folder of the servers: a note, and a cluster that does not exist.
FILES: Final = {
    "note.md": "A note.",
    "kubeconfig": """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
""",
}
SERVERS: Final = (
    RealServer(
        "everything",
        "@modelcontextprotocol/server-everything@2026.8.31",
        "get-sum",
        {"a": 2, "b": 3},
        ("stdio",),
        works=True,
    ),
    RealServer(
        "filesystem",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "list_directory",
        {"path": FOLDER},
        (FOLDER,),
        works=True,
    ),
    RealServer(
        "gitlab",
        "@modelcontextprotocol/server-gitlab@2025.4.25",
        "search_repositories",
        {"search": "tools"},
        env={"GITLAB_PERSONAL_ACCESS_TOKEN": NO_KEY},
    ),
    RealServer(
        "amap",
        "@amap/amap-maps-mcp-server@0.0.8",
        "maps_weather",
        {"city": "Beijing"},
        env={"AMAP_MAPS_API_KEY": NO_KEY},
    ),
    RealServer(
        "baidu",
        "@baidumap/mcp-server-baidu-map@1.0.5",
        "map_geocode",
        {"address": "Beijing"},
        env={"BAIDU_MAP_API_KEY": NO_KEY},
    ),
    RealServer("godot", "@coding-solo/godot-mcp@0.1.1", "get_debug_output"),
    RealServer(
        "trello",
        "@delorenj/mcp-server-trello@1.8.1",
        "get_lists",
        {"boardId": "none"},
        env={"TRELLO_API_KEY": NO_KEY, "TRELLO_TOKEN": NO_KEY},
    ),
    RealServer("googlemaps", "@googlemaps/code-assist-mcp@0.2.1", "retrieve-instructions", works=True),
    RealServer(
        "hubspot", "@hubspot/mcp-server@0.4.0", "hubspot-get-user-details", env={"PRIVATE_APP_ACCESS_TOKEN": NO_KEY}
    ),
    RealServer(
        "youtube",
        "@kimtaeyoon83/mcp-server-youtube-transcript@0.1.1",
        "get_transcript",
        {"url": "https://youtu.be/00000000000", "lang": "en"},
    ),
    RealServer("magicui", "@magicuidesign/mcp@2.0.0", "listRegistryItems"),
    RealServer(
        "excel",
        "@negokaz/excel-mcp-server@0.12.0",
        "excel_describe_sheets",
        {"fileAbsolutePath": f"{FOLDER}/none.xlsx"},
    ),
    RealServer("netlify", "@netlify/mcp@1.15.1", "netlify-coding-rules", {"creationType": "serverless"}),
    RealServer("notion", "@notionhq/notion-mcp-server@2.5.2", "API-get-self", env={"NOTION_TOKEN": NO_KEY}),
    RealServer(
        "supabase",
        "@supabase/mcp-server-postgrest@0.2.0",
        "sqlToRest",
        {"sql": "select * from books where year > 1990"},
        ("--apiUrl=http://127.0.0.1:1", "--schema=public"),
        works=True,
    ),
    RealServer(
        "linear",
        "@tacticlaunch/mcp-linear@1.4.3",
        "linear_getViewer",
        env={"LINEAR_API_TOKEN": NO_KEY, "LINEAR_API_KEY": NO_KEY},
    ),
    RealServer(
        "context7",
        "@upstash/context7-mcp@4.1.1",
        "resolve-library-id",
        {"query": "how to route", "libraryName": "starlette"},
    ),
    RealServer("vapi", "@vapi-ai/mcp-server@0.0.11", "list_assistants", env={"VAPI_TOKEN": NO_KEY}),
    RealServer("airtable", "airtable-mcp-server@1.14.0", "list_bases", env={"AIRTABLE_API_KEY": "pat.1"}),
    RealServer("duckduckgo", "duckduckgo-mcp-server@0.1.2", "duckduckgo_web_search", {"query": "tool search"}),
    RealServer("exa", "exa-mcp-server@3.4.1", "web_search_exa", {"query": "tool search"}, env={"EXA_API_KEY": NO_KEY}),
    RealServer("ios", "ios-simulator-mcp@2.1.0", "get_booted_sim_id"),
    RealServer(
        "kubernetes",
        "kubernetes-mcp-server@0.0.67",
        "configuration_view",
        args=("--toolsets", "config,core,helm"),
        env={"KUBECONFIG": f"{FOLDER}/kubeconfig"},
        works=True,
    ),
    RealServer("obsidian", "mcp-obsidian@1.0.0", "search_notes", {"query": "note"}, (FOLDER,), works=True),
    RealServer("searxng", "mcp-searxng@1.16.0", "searxng_instance_info", env={"SEARXNG_URL": "http://127.0.0.1:1"}),
    RealServer("time", "mcp-server-time==2026.10.19", "get_current_time", {"timezone": "UTC"}, works=True),
    RealServer("calculator", "mcp-server-calculator==0.2.1", "calculate", {"expression": "2+3"}, works=True),
)


def install_python_servers(folder: Path) -> None:
    """Install the servers from PyPI, each in its own virtual environment."""
    for server in SERVERS:
        if server.is_python and not server.program(folder).exists():
            venv.create(folder / server.name, with_pip=True)
            subprocess.run(
                [str(folder / server.name / "bin" / "pip"), "install", "-q", server.package],
                check=True,
                stdout=sys.stderr,
                timeout=INSTALL_SECONDS,
            )
