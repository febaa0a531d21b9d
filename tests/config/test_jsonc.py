"""Edits of one member of a JSON text or one table of a TOML text."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config.clients.importing import parse_toml
from toolcrib.config.clients.write_back import append_table, remove_tables
from toolcrib.config.jsonc import parse_jsonc, remove_members, set_member
from toolcrib.errors import InvalidConfig


def _value(text: str) -> Any:
    return parse_jsonc("text", text).value


_TEXT = """\
// Mine.
{
  "theme": "dark", // as it should be
  "servers": {
    // The first.
    "a": {"command": "x"}, // about a
    // The second.
    "b": {
      "command": "y" /* y! */
    }
  },
  "last": [1, 2]
}
"""


def test_new_member_is_appended_and_comments_are_kept() -> None:
    after = set_member(_TEXT, ("servers",), "c", {"command": "z", "args": []})
    assert after == _TEXT.replace(
        """\
      "command": "y" /* y! */
    }
""",
        """\
      "command": "y" /* y! */
    },
    "c": {
      "command": "z",
      "args": []
    }
""",
    )


def test_member_is_replaced_in_place() -> None:
    after = set_member(_TEXT, ("servers",), "a", 1)
    assert after == _TEXT.replace('{"command": "x"}', "1")


def test_removed_member_takes_only_its_own_comment() -> None:
    after = remove_members(_TEXT, ("servers",), ["a"])
    assert after == _TEXT.replace('    "a": {"command": "x"}, // about a\n', "")
    after = remove_members(_TEXT, ("servers",), ["b"])
    gone = '    "b": {\n      "command": "y" /* y! */\n    }\n'
    assert after == _TEXT.replace(gone, "").replace('"x"}, //', '"x"} //')
    assert _value(remove_members(_TEXT, ("servers",), ["b", "a", "none"]))["servers"] == {}


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{}", '{\n  "s": {\n    "n": 1\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "s": {"n": 1}}'),
        ('{"s": {}}', '{"s": {\n  "n": 1\n}}'),
        ('{"s": {"m": 2,}}', '{"s": {"m": 2, "n": 1,}}'),
        ('{\n\t"s": {\n\t\t"m": 2,\n\t}\n}', '{\n\t"s": {\n\t\t"m": 2,\n\t\t"n": 1\n\t}\n}'),
        ('{\r\n    "a": 1\r\n}', '{\r\n    "a": 1,\r\n    "s": {\r\n        "n": 1\r\n    }\r\n}'),
        ('{\n  "s": {\n    // none\n  }\n}', '{\n  "s": {\n    // none\n    "n": 1\n  }\n}'),
        ('{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "s": {\n    "n": 1\n  }\n}'),
    ],
)
def test_edit_follows_the_layout_of_the_text(text: str, after: str) -> None:
    assert set_member(text, ("s",), "n", 1) == after
    assert _value(after)["s"]["n"] == 1


def test_missing_parents_are_created() -> None:
    assert _value(set_member('{"a": {}}', ("a", "b", "c"), "n", 1)) == {"a": {"b": {"c": {"n": 1}}}}


def test_member_of_a_non_object_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="must be an object; correct it"):
        set_member('{"s": []}', ("s",), "n", 1)


_NAMES = st.text(alphabet='ab"\\/*,{}é ', max_size=4)
_VALUES = st.recursive(
    st.none() | st.integers() | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=4)


def _render(value: Any, rng: random.Random) -> str:
    """Return a value as JSON in a random layout, with comments and trailing commas."""

    def gap() -> str:
        return rng.choice(["", " ", "\n", "\n  ", " // , } ]\n", '/* " , */'])

    if not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    if isinstance(value, list):
        parts = [f"{gap()}{_render(one, rng)}{gap()}" for one in value]
    else:
        parts = [f"{gap()}{json.dumps(name)}{gap()}:{gap()}{_render(one, rng)}{gap()}" for name, one in value.items()]
    tail = rng.choice(["", f",{gap()}"])
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{','.join(parts)}{tail}{closing}"


@given(_OBJECTS, _NAMES, _VALUES, st.randoms(use_true_random=False))
def test_set_member_changes_nothing_else(members: dict[str, Any], name: str, value: Any, rng: random.Random) -> None:
    text = _render({"x": 1, "inner": members, "y": 2}, rng)
    after = set_member(text, ("inner",), name, value)
    assert _value(after) == {"x": 1, "inner": {**members, name: value}, "y": 2}


@given(_OBJECTS, st.data(), st.randoms(use_true_random=False))
def test_remove_members_changes_nothing_else(members: dict[str, Any], data: st.DataObject, rng: random.Random) -> None:
    text = _render({"x": 1, "inner": members, "y": 2}, rng)
    names = data.draw(st.lists(st.sampled_from([*members, "none"])))
    after = remove_members(text, ("inner",), names)
    left = {name: value for name, value in members.items() if name not in names}
    assert _value(after) == {"x": 1, "inner": left, "y": 2}


_TOML = """\
model = "gpt-5.5"  # the best

# Documents.
[mcp_servers.docs]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
# of docs

[mcp_servers.docs.env]
KEY = "[mcp_servers.fake]"

# Figma.
[mcp_servers.figma] # remote
url = "https://example.com/mcp"

[mcp_servers."my server"]
command = "x"

[projects."/home/me/x"]
trust_level = "trusted"
"""


def test_remove_tables_includes_subtables_and_keeps_next_comments() -> None:
    after = remove_tables(_TOML, "mcp_servers", ["docs", "my server"])
    assert (
        after
        == """\
model = "gpt-5.5"  # the best

# Documents.

# Figma.
[mcp_servers.figma] # remote
url = "https://example.com/mcp"


[projects."/home/me/x"]
trust_level = "trusted"
"""
    )
    assert list(tomllib.loads(after)["mcp_servers"]) == ["figma"]


def test_header_inside_a_string_is_ignored() -> None:
    text = '[m.a]\nx = """\n[no header]\n"""\n[[hooks]]\nrun = 1\n[n.a]\n'
    assert remove_tables(text, "m", ["a"]) == "[[hooks]]\nrun = 1\n[n.a]\n"


@given(st.text(max_size=8), st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3))
def test_appended_table_parses_to_its_values(name: str, env: dict[str, str]) -> None:
    values = {"command": name, "args": [name], "env": env, "on": True, "seconds": 1.5}
    after = append_table(_TOML, "mcp_servers", f"x{name}", values)
    read = tomllib.loads(after)["mcp_servers"]
    assert read[f"x{name}"] == values
    assert after.startswith(_TOML)


def test_table_appended_to_empty_text() -> None:
    assert append_table("", "mcp_servers", "a", {"command": "b"}) == ('[mcp_servers.a]\ncommand = "b"\n')
    assert "\n" not in append_table("a = 1\r\n", "m", "a", {}).replace("\r\n", "")


def test_invalid_toml_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="file: not valid TOML: "):
        parse_toml("file", "[")
