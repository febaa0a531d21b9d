"""Each import contract fails when a module violates it."""

from __future__ import annotations

import os
import re
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
def package_copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("data", "*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_unchanged_package_keeps_all_contracts(package_copy: Path) -> None:
    result = _lint(package_copy)
    assert result.returncode == 0, result.stdout


CASES = [
    ("core/tool.py", "import toolcrib.adapters.mcp", "Layers"),
    ("adapters/mcp.py", "import toolcrib.profiles.shipit", "Layers"),
    ("new_module.py", "", "Layers"),
    ("registry/execution.py", "import toolcrib.agent.agent", "Layers"),
    ("search/ranker.py", "import toolcrib.search.engine", "Layers of search"),
    ("search/lexical/fuzzy.py", "import toolcrib.search.dense.index", "Layers of search"),
    ("search/new_module.py", "", "Layers of search"),
    ("gateway/metrics.py", "import toolcrib.gateway.middleware", "Layers of the gateway"),
    ("gateway/mcp/upstream/connection.py", "import toolcrib.gateway.mcp.server.router", "Layers of the MCP gateway"),
    (
        "gateway/llm/openai_chat/endpoint.py",
        "import toolcrib.gateway.llm.openai_responses.tools",
        "The LLM APIs are independent",
    ),
    ("search/lexical/terms.py", "import toolcrib.search.lexical.ranker", "No import cycles"),
    ("storage/sql_database.py", "import toolcrib.storage.store", "No import cycles"),
    ("agent/openai_chat.py", "import toolcrib.agent.anthropic", "Agent providers are independent"),
    ("frameworks/langchain.py", "import toolcrib.frameworks.langgraph", "Frameworks are independent"),
    ("profiles/shipit.py", "import toolcrib.profiles.everruns", "Profiles are independent"),
    ("core/catalog.py", "import socket", "Pure packages"),
    ("search/engine.py", "import subprocess", "Pure packages"),
    ("safety/scan.py", "import socket", "Pure packages"),
    ("adapters/anthropic.py", "import os", "Pure packages"),
]


@pytest.mark.parametrize(("module", "line", "contract"), CASES)
def test_violation_breaks_the_contract(package_copy: Path, module: str, line: str, contract: str) -> None:
    path = package_copy / "src" / "toolcrib" / module
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = _lint(package_copy)
    assert result.returncode == 1
    broken = [line for line in result.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith((f"{contract} ", f"{contract}:")) for line in broken), result.stdout


def test_every_contract_has_a_violation_case() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    broken = {contract for _, _, contract in CASES}
    untested = [one["name"] for one in contracts if one["name"].partition(":")[0] not in broken]
    assert untested == []


def test_architecture_page_shows_the_contracts() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layered = [one for one in contracts if one["type"] == "layers"]
    assert len(layered) >= 4
    for contract in layered:
        layers = "".join(f"  {layer}\n" for layer in contract["layers"])
        assert f"{contract['containers'][0]}:\n{layers}" in page


def test_architecture_page_names_existing_files() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`([a-z_/]+\.py)`", page) if "/" in name}
    assert len(named) > 30
    paths = [str(path.relative_to(ROOT / "src")) for path in ROOT.glob("src/toolcrib/**/*.py")]
    missing = sorted(name for name in named if not any(p.endswith(f"/{name}") for p in paths))
    assert missing == []
