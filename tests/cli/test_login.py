"""`toolcrib login`, as far as it needs no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolcrib.cli.main import toolcrib


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        (["github", "files"], "in {path}; there are: github, files"),
        (["github", "nope-2"], "in {path}; did you mean nope-2?"),
        ([], "in {path}; there is none at all; bring some with `toolcrib import`"),
        ([f"s{number}" for number in range(20)], "s10, s11, …"),
    ],
)
def test_a_server_that_is_not_configured_is_told_with_those_that_are(
    tmp_path: Path, servers: list[str], told: str
) -> None:
    path = tmp_path / "toolcrib.json"
    entries = {name: {"url": "https://example.com/mcp"} for name in servers}
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    done = CliRunner().invoke(toolcrib, ["login", "nope", "--config", str(path)])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: there is no server 'nope' in ")
    assert done.stderr.endswith(f"{told.format(path=path)}\n")
