"""Finding and reading the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config.jsonc import blank_extensions
from toolcrib.config.loader import find_config_path, list_config_paths, load_config
from toolcrib.errors import InvalidConfig


def _write_config(folder: Path, text: str) -> Path:
    path = folder / "toolcrib.json"
    path.write_text(text, encoding="utf-8")
    return path


def _message(folder: Path, text: str, **environment: str) -> str:
    path = _write_config(folder, text)
    with pytest.raises(InvalidConfig) as caught:
        load_config(path, environment)
    return str(caught.value).replace(str(path), "F")


def test_file_with_comments_is_read(tmp_path: Path) -> None:
    path = _write_config(
        tmp_path,
        """// Ours.
        {
          /* all of
             them */
          "mcpServers": {
            "a": {"command": "x", "args": ["//no comment", "/* nor */ this,]", "\\"//"],},  // one
          },
        }
        """,
    )
    config = load_config(path, {})
    assert config.servers["a"].args == ("//no comment", "/* nor */ this,]", '"//')
    assert config.path == path


def test_file_with_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(b'\xef\xbb\xbf{"http": {"port": 1}}')
    assert load_config(path, {}).http.port == 1


def test_process_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_TEST_PORT", "77")
    assert load_config(_write_config(tmp_path, '{"http": {"port": "${TOOLCRIB_TEST_PORT}"}}')).http.port == 77


def test_error_names_the_line(tmp_path: Path) -> None:
    text = '{\n  // …\n  "mcpServers": {\n    "a": {\n      "comand": "x",\n    }\n  }\n}'
    assert _message(tmp_path, text) == ('F, line 5: mcpServers.a.comand: unknown key; did you mean "command"?')
    text = '{\n  "mcpServers": {\n    "a": {\n      "enabled": true\n    }\n  }\n}'
    assert _message(tmp_path, text).startswith("F, line 3: mcpServers.a: has neither")
    text = '{\n"mcpServers": {\n"a": {"command": "x", "alias": "b"},\n"b": {"command": "x"}}}'
    assert _message(tmp_path, text).startswith("F, line 4: mcpServers.b.alias: the tools of this")


def test_duplicate_key_is_rejected(tmp_path: Path) -> None:
    text = '{\n"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}\n}}'
    assert _message(tmp_path, text) == ('F, line 4: mcpServers.a: the key "a" appears twice; rename or remove one')
    text = '{"mcpServers": {}, "x": [1, {"b": 1, "b": 2}]}'
    assert 'F, line 1: x[1].b: the key "b" appears twice' in _message(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'F: the file is empty; it should contain a configuration such as {"mcpServers": {}}'),
        ("{", "F, line 1: column 2: the text ends in the middle of a value"),
        ('{"a": 1 "b": 2}', "F, line 1: column 9: invalid JSON: expecting ',' delimiter"),
        ("{}\n{}", "F, line 2: more text follows the value; keep one value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"http": {"port": NaN}}', "NaN is not a valid JSON number"),
        ("[1]", "F, line 1: must be an object, not a list"),
        ("{} /* never closed", ""),
    ],
)
def test_invalid_json_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    if not message:
        assert load_config(_write_config(tmp_path, text), {}).servers == {}
        return
    assert message in _message(tmp_path, text)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no such file; check the path"):
        load_config(tmp_path / "none.json")


def test_search_order_of_config_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    mine = tmp_path / "xdg" / "toolcrib" / "toolcrib.json"
    assert list_config_paths(None, home) == [Path("toolcrib.json"), mine]
    assert find_config_path(None, home) is None
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    assert find_config_path(None, home) == mine
    _write_config(tmp_path, "{}")
    assert find_config_path(None, home) == Path("toolcrib.json")
    assert find_config_path(None, {**home, "TOOLCRIB_CONFIG": "/else/where.json"}) == Path("/else/where.json")
    assert find_config_path("named.json", {"TOOLCRIB_CONFIG": "/else/where.json"}) == Path("named.json")


def test_default_config_folder_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert list_config_paths(None, {})[1] == tmp_path / ".config" / "toolcrib" / "toolcrib.json"


@given(st.text(alphabet='{}[]",/*\\\n :1a'))
def test_blanking_keeps_all_offsets(text: str) -> None:
    result = blank_extensions(text)
    assert len(result) == len(text)
    assert [at for at, one in enumerate(result) if one == "\n"] == [at for at, one in enumerate(text) if one == "\n"]
    assert all(new in (old, " ") for new, old in zip(result, text, strict=True))
