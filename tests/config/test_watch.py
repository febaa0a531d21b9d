"""Watching a configuration: what an edit changed, and that a broken one changes nothing."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.config.loader import load
from toolcrib.config.settings import Config, Http, Server, ToolSearch
from toolcrib.config.watch import Difference, Edit, Watcher, difference

_A, _B, _C = (Server(name, command="x") for name in "abc")


def _config(*servers: Server) -> Config:
    return Config({server.name: server for server in servers})


def test_the_difference_of_two_configurations_is_what_there_is_to_do() -> None:
    changed = replace(_B, args=("y",))
    new = replace(_config(_C, changed), tool_search=ToolSearch(debug=True), http=Http(port=1))
    found = difference(_config(_A, _B), new)
    assert found == Difference(
        added=(_C,), changed=(changed,), removed=("a",), rest=("tool_search", "http")
    )
    assert found


def test_equal_configurations_do_not_differ() -> None:
    old, new = _config(_A), replace(_config(_A), path=Path("x"), notes=("y",))
    assert difference(old, new) == Difference()
    assert not difference(old, new)


def test_another_order_is_a_difference_but_no_server_changed() -> None:
    assert difference(_config(_A, _B), _config(_B, _A)) == Difference(order=True)
    # One put in between moves nobody.
    assert difference(_config(_A, _B), _config(_A, _C, _B)) == Difference(added=(_C,))


def _write(path: Path, text: str, tick: int) -> None:
    """Write the file at a time of its own, however quick the test is."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(tick * 10**9, tick * 10**9))


_ONE = '{"mcpServers": {"a": {"command": "x"}}}'
_TWO = '{"mcpServers": {"a": {"command": "y"}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "toolcrib.json"
    _write(path, _ONE, 1)
    return path


def _watcher(path: Path) -> Watcher:
    return Watcher(load(path, {}), path, environment={}, poll_seconds=0.001)


def test_an_edit_is_seen_once(path: Path) -> None:
    watcher = _watcher(path)
    assert watcher.look() is None
    _write(path, _TWO, 2)
    edit = watcher.look()
    assert edit is not None
    assert [server.command for server in edit.difference.changed] == ["y"]
    assert watcher.config is edit.config
    assert [watcher.look() for _ in range(3)] == [None] * 3


def test_an_edit_that_changes_no_setting_is_no_edit(path: Path) -> None:
    watcher = _watcher(path)
    watcher.look()
    _write(path, f"// A comment.\n{_ONE}", 2)
    assert [watcher.look() for _ in range(3)] == [None] * 3
    os.utime(path, ns=(3, 3))
    assert watcher.look() is None


def test_two_edits_of_one_size_at_one_time_are_both_seen(path: Path) -> None:
    watcher = _watcher(path)
    _write(path, _TWO, 2)
    first = watcher.look()
    _write(path, _ONE, 2)
    second = watcher.look()
    assert first is not None
    assert second is not None
    assert second.config.servers["a"].command == "x"


def test_a_broken_edit_keeps_what_there_was_and_says_why_once(path: Path) -> None:
    watcher = _watcher(path)
    before = watcher.config
    _write(path, '{"mcpServers": ', 2)
    # At first it may be half of an edit.
    assert watcher.look() is None
    edit = watcher.look()
    assert edit is not None
    assert edit.config is before
    assert not edit.difference
    assert "the text ends in the middle of a value" in edit.fault
    assert [watcher.look() for _ in range(3)] == [None] * 3
    _write(path, _ONE, 3)
    assert watcher.look() == Edit(before)
    assert watcher.look() is None


def test_a_file_written_in_steps_is_never_called_broken(path: Path) -> None:
    watcher = _watcher(path)
    _write(path, "{", 2)
    assert watcher.look() is None
    _write(path, _TWO, 3)
    edit = watcher.look()
    assert edit is not None
    assert not edit.fault


def test_a_file_that_is_gone_keeps_what_there_was(path: Path) -> None:
    watcher = _watcher(path)
    watcher.look()
    path.unlink()
    assert watcher.look() is None
    edit = watcher.look()
    assert edit is not None
    assert "there is no such file" in edit.fault
    assert [watcher.look() for _ in range(3)] == [None] * 3
    _write(path, _TWO, 5)
    edit = watcher.look()
    assert edit is not None
    assert edit.config.servers["a"].command == "y"


def test_edits_are_given_as_they_come(path: Path) -> None:
    async def commands() -> list[str]:
        watcher = _watcher(path)
        seen: list[str] = []
        async with asyncio.timeout(30):
            _write(path, _TWO, 2)
            async for edit in watcher.edits():
                seen.append(edit.config.servers["a"].command)
                if len(seen) == 2:
                    break
                _write(path, _ONE, 3)
        return seen

    assert asyncio.run(commands()) == ["y", "x"]
