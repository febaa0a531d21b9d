"""Changes of a configuration file, and invalid edits."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.config.loader import load_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig, HttpConfig, ToolSearchConfig
from toolcrib.config.watch import ConfigChange, ConfigDifference, ConfigWatcher, diff_configs

_A, _B, _C = (ServerConfig(name, command="x") for name in "abc")


def _config(*servers: ServerConfig) -> GatewayConfig:
    return GatewayConfig({server.name: server for server in servers})


def test_difference_lists_servers_and_sections() -> None:
    changed = replace(_B, args=("y",))
    new = replace(_config(_C, changed), tool_search=ToolSearchConfig(debug=True), http=HttpConfig(port=1))
    found = diff_configs(_config(_A, _B), new)
    assert found == ConfigDifference(added=(_C,), changed=(changed,), removed=("a",), sections=("tool_search", "http"))
    assert found


def test_equal_configs_have_no_difference() -> None:
    old, new = _config(_A), replace(_config(_A), path=Path("x"), notes=("y",))
    assert diff_configs(old, new) == ConfigDifference()
    assert not diff_configs(old, new)


def test_reordered_servers_are_not_changed() -> None:
    assert diff_configs(_config(_A, _B), _config(_B, _A)) == ConfigDifference(is_reordered=True)
    # An added server does not reorder the others.
    assert diff_configs(_config(_A, _B), _config(_A, _C, _B)) == ConfigDifference(added=(_C,))


def _write(path: Path, text: str, tick: int) -> None:
    """Write the file with a distinct timestamp."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(tick * 10**9, tick * 10**9))


_ONE = '{"mcpServers": {"a": {"command": "x"}}}'
_TWO = '{"mcpServers": {"a": {"command": "y"}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "toolcrib.json"
    _write(path, _ONE, 1)
    return path


def _watcher(path: Path) -> ConfigWatcher:
    return ConfigWatcher(load_config(path, {}), path, environment={}, poll_seconds=0.001)


def test_edit_is_reported_once(path: Path) -> None:
    watcher = _watcher(path)
    assert watcher.check_once() is None
    _write(path, _TWO, 2)
    edit = watcher.check_once()
    assert edit is not None
    assert [server.command for server in edit.difference.changed] == ["y"]
    assert watcher.config is edit.config
    assert [watcher.check_once() for _ in range(3)] == [None] * 3


def test_edit_without_effect_is_not_reported(path: Path) -> None:
    watcher = _watcher(path)
    watcher.check_once()
    _write(path, f"// A comment.\n{_ONE}", 2)
    assert [watcher.check_once() for _ in range(3)] == [None] * 3
    os.utime(path, ns=(3, 3))
    assert watcher.check_once() is None


def test_two_edits_with_equal_size_and_time_are_reported(path: Path) -> None:
    watcher = _watcher(path)
    _write(path, _TWO, 2)
    first = watcher.check_once()
    _write(path, _ONE, 2)
    second = watcher.check_once()
    assert first is not None
    assert second is not None
    assert second.config.servers["a"].command == "x"


def test_invalid_edit_keeps_the_config_and_is_reported_once(path: Path) -> None:
    watcher = _watcher(path)
    before = watcher.config
    _write(path, '{"mcpServers": ', 2)
    # The edit may be incomplete at first.
    assert watcher.check_once() is None
    edit = watcher.check_once()
    assert edit is not None
    assert edit.config is before
    assert not edit.difference
    assert "the text ends in the middle of a value" in edit.error
    assert [watcher.check_once() for _ in range(3)] == [None] * 3
    _write(path, _ONE, 3)
    assert watcher.check_once() == ConfigChange(before)
    assert watcher.check_once() is None


def test_file_written_in_steps_is_not_reported_as_invalid(path: Path) -> None:
    watcher = _watcher(path)
    _write(path, "{", 2)
    assert watcher.check_once() is None
    _write(path, _TWO, 3)
    edit = watcher.check_once()
    assert edit is not None
    assert not edit.error


def test_deleted_file_keeps_the_config(path: Path) -> None:
    watcher = _watcher(path)
    watcher.check_once()
    path.unlink()
    assert watcher.check_once() is None
    edit = watcher.check_once()
    assert edit is not None
    assert "there is no such file" in edit.error
    assert [watcher.check_once() for _ in range(3)] == [None] * 3
    _write(path, _TWO, 5)
    edit = watcher.check_once()
    assert edit is not None
    assert edit.config.servers["a"].command == "y"


def test_iter_changes_yields_edits_in_order(path: Path) -> None:
    async def commands() -> list[str]:
        watcher = _watcher(path)
        seen: list[str] = []
        async with asyncio.timeout(30):
            _write(path, _TWO, 2)
            async for edit in watcher.iter_changes():
                seen.append(edit.config.servers["a"].command)
                if len(seen) == 2:
                    break
                _write(path, _ONE, 3)
        return seen

    assert asyncio.run(commands()) == ["y", "x"]
