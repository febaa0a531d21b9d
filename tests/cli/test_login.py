from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolcrib.cli.main import toolcrib


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (["github", "files"], "in {path}; known servers: github, files"),
        (["github", "nope-2"], "in {path}; did you mean nope-2?"),
        ([], "in {path}; there are no servers; add some with `toolcrib import`"),
        ([f"s{number}" for number in range(20)], "s10, s11, …"),
    ],
)
def test_unknown_server_lists_the_known_ones(tmp_path: Path, servers: list[str], message: str) -> None:
    path = tmp_path / "toolcrib.json"
    entries = {name: {"url": "https://example.com/mcp"} for name in servers}
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    result = CliRunner().invoke(toolcrib, ["login", "nope", "--config", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is no server 'nope' in ")
    assert result.stderr.endswith(f"{message.format(path=path)}\n")
