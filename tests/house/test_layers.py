"""Each import contract is seen to fail when it is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_house_stands(house: Path) -> None:
    result = _lint(house)
    assert result.returncode == 0, result.stdout


CASES = [
    ("core/tool.py", "import toolcrib.adapters.mcp", "Imports point down"),
    ("adapters/mcp.py", "import toolcrib.profiles.shipit", "Imports point down"),
    ("newcomer.py", "", "Imports point down"),
    ("core/text.py", "import toolcrib.search.engine", "Imports point down inside the core"),
    ("core/newcomer.py", "", "Imports point down inside the core"),
    (
        "core/ranking/fuzzy.py",
        "import toolcrib.search.lexical.ranker",
        "Rankers do not know each other",
    ),
    (
        "profiles/shipit.py",
        "import toolcrib.profiles.everruns",
        "Profiles do not know each other",
    ),
    (
        "evaluation/metric.py",
        "import toolcrib.evaluation.runner",
        "Imports point down inside the evaluation",
    ),
    (
        "model/encoder.py",
        "import toolcrib.encoder.onnx_backend",
        "Imports point down inside the model",
    ),
    (
        "embedding/cache.py",
        "import toolcrib.embedders.openai",
        "Embedders do not know each other",
    ),
    (
        "config/section.py",
        "import toolcrib.config.reading",
        "Imports point down inside the configuration",
    ),
    (
        "gateways/model/shelf.py",
        "import toolcrib.gateway.llm.openai_chat.rewriter",
        "Imports point down inside the model gateway",
    ),
    (
        "gateways/model/responses/tools.py",
        "import toolcrib.gateway.llm.openai_responses.rewriter",
        "Imports point down inside responses",
    ),
    (
        "frameworks/langchain.py",
        "import toolcrib.frameworks.langgraph",
        "Frameworks do not know each other",
    ),
    (
        "storage/store.py",
        "import toolcrib.storage.sqlite",
        "Imports point down inside the storage",
    ),
    ("safety/pin.py", "import toolcrib.safety.scan", "Imports point down inside the safety"),
    (
        "gateways/metrics.py",
        "import toolcrib.gateway.middleware",
        "The doors do not know each other",
    ),
    ("safety/scan.py", "import socket", "The core is pure"),
    (
        "gateways/model/sse.py",
        "import toolcrib.gateway.llm.routes",
        "Imports point down inside the model gateway",
    ),
    ("core/catalog.py", "import socket", "The core is pure"),
    ("core/ranking/pattern.py", "import threading", "The core is pure"),
    ("adapters/anthropic.py", "import os", "The core is pure"),
    (
        "registry/function.py",
        "import toolcrib.registry.execution",
        "Imports point down inside the registry",
    ),
    ("registry/newcomer.py", "", "Imports point down inside the registry"),
    (
        "agent/openai_chat.py",
        "import toolcrib.agent.anthropic",
        "Providers do not know each other",
    ),
    ("agent/newcomer.py", "", "Providers do not know each other"),
    ("registry/entry.py", "import toolcrib.agent.events", "Imports point down"),
    ("agent/event.py", "import toolcrib.toolcrib", "Imports point down"),
    (
        "gateways/model/chat/tools.py",
        "import toolcrib.gateway.llm.openai_chat.rewriter",
        "Imports point down inside chat completions",
    ),
    ("service/view.py", "import toolcrib.hub.hub", "Imports point down inside the service"),
    (
        "gateways/mcp/link.py",
        "import toolcrib.gateway.mcp.server.router",
        "Imports point down inside the MCP gateway",
    ),
    (
        "gateways/mcp/doorstep.py",
        "import mcp",
        "The first answers on standard input need no SDK",
    ),
]


@pytest.mark.parametrize(("module", "line", "contract"), CASES)
def test_a_broken_contract_is_seen(house: Path, module: str, line: str, contract: str) -> None:
    path = house / "src" / "toolcrib" / module
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = _lint(house)
    assert result.returncode == 1
    broken = [line for line in result.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith((f"{contract} ", f"{contract}:")) for line in broken), result.stdout


def test_every_contract_is_seen_to_fail() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    broken = {contract for _, _, contract in CASES}
    unseen = [one["name"] for one in contracts if one["name"].partition(":")[0] not in broken]
    assert unseen == []
