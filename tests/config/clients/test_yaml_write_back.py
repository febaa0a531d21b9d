"""Write Toolcrib into the files of opencode, Continue and Goose, and undo it; comments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.clients.client_files import CONTINUE, GOOSE, OPENCODE, OPENCODE_2, put
from toolcrib.config.clients.importing import parse_servers
from toolcrib.config.clients.locations import OPENCODE_2_SECTION, SERVERS, ClientFile
from toolcrib.config.clients.write_back import apply_restore, apply_rewrite, plan_restore, plan_rewrite
from toolcrib.config.clients.yaml_edit import add_entry, remove_entries
from toolcrib.errors import InvalidConfig

COMMAND = ["/bin/toolcrib", "stdio", "--config", "/c.json"]
COMMENTED = """\
# The first line.
GOOSE_PROVIDER: anthropic  # mine
extensions:
  # Stays with github.
  github:
    type: stdio
    cmd: npx   # npm
    args:
      - -y
      - server
    # about envs
    envs: {}
  # Stays with memory.
  memory:
    type: stdio
    cmd: |
      mem
      ory
    args: []

  developer:
    type: builtin
# The end.
GOOSE_MODEL: x
"""


def goose(path: Path) -> ClientFile:
    return ClientFile("goose", path, ("extensions",), format="yaml")


def continue_file(path: Path) -> ClientFile:
    return ClientFile("continue", path, SERVERS, format="yaml")


@pytest.mark.parametrize(
    ("source", "text", "names", "expected"),
    [
        (goose, GOOSE, ["github", "remote"], {"developer", "script", "toolcrib"}),
        (goose, COMMENTED, ["github", "memory"], {"developer", "toolcrib"}),
        (goose, COMMENTED, ["memory"], {"github", "developer", "toolcrib"}),
        (goose, COMMENTED.replace("\n", "\r\n"), ["github"], {"memory", "developer", "toolcrib"}),
        (goose, "extensions: {}\n", [], {"toolcrib"}),
        (goose, "extensions:\n", [], {"toolcrib"}),
        (goose, "a: 1", [], {"toolcrib"}),
        (continue_file, CONTINUE, ["SQLite", "SQLite-2"], {"toolcrib"}),
        (continue_file, "mcpServers:\n- name: a\n  command: x\n# z\nrules: []\n", ["a"], {"toolcrib"}),
        (continue_file, "mcpServers: [] # none\n", [], {"toolcrib"}),
    ],
)
def test_servers_are_replaced_and_restored(
    tmp_path: Path, source: Any, text: str, names: list[str], expected: set[str]
) -> None:
    file = source(put(tmp_path / "config.yaml", text))
    plan = plan_rewrite(file, {file.section: names}, COMMAND)
    apply_rewrite(plan)
    after = file.path.read_bytes().decode()
    found = parse_servers(file, after)
    assert set(found) == expected
    assert found["toolcrib"].get("cmd", found["toolcrib"].get("command")) == COMMAND[0]
    for comment in ("# The first line.", "# mine", "# The end.", "# z", "# none"):
        assert (comment in text) is (comment in after)
    assert ("\r\n" in text) is ("\r\n" in after)
    restore = plan_restore(file)
    assert restore is not None
    apply_restore(restore)
    assert file.path.read_bytes().decode() == text


def test_an_edited_file_gets_its_servers_back(tmp_path: Path) -> None:
    file = goose(put(tmp_path / "config.yaml", COMMENTED))
    apply_rewrite(plan_rewrite(file, {file.section: ["github", "memory"]}, COMMAND))
    file.path.write_text(file.path.read_text().replace("GOOSE_MODEL: x", "GOOSE_MODEL: y # new"))
    restore = plan_restore(file)
    assert restore is not None
    apply_restore(restore)
    after = file.path.read_text()
    assert "# new" in after
    assert "# Stays with memory." in after
    assert parse_servers(file, after) == parse_servers(file, COMMENTED)


def test_comments_of_other_entries_stay(tmp_path: Path) -> None:
    after = remove_entries(COMMENTED, "extensions", ["github"])
    assert "# Stays with memory.\n  memory:" in after
    assert "npm" not in after
    assert yaml.safe_load(after)["extensions"]["memory"]["cmd"] == "mem\nory\n"


@pytest.mark.parametrize("text", ["extensions: {a: {type: stdio, cmd: x}}\n", "{extensions: {a: {cmd: x}}}\n"])
def test_a_section_on_one_line_is_left_alone(tmp_path: Path, text: str) -> None:
    file = goose(put(tmp_path / "config.yaml", text))
    with pytest.raises(InvalidConfig, match="unchanged, because its layout cannot be edited"):
        plan_rewrite(file, {file.section: ["a"]}, COMMAND)


@pytest.mark.parametrize(
    ("text", "section", "names"), [(OPENCODE, ("mcp",), ["everything"]), (OPENCODE_2, OPENCODE_2_SECTION, ["files"])]
)
def test_opencode_is_rewritten_in_both_versions(
    tmp_path: Path, text: str, section: tuple[str, ...], names: list[str]
) -> None:
    text = text.replace(',\n      "own": {"type": "local", "command": ["toolcrib", "stdio"]}', "")
    file = ClientFile("opencode", put(tmp_path / "opencode.jsonc", text), ("mcp",))
    apply_rewrite(plan_rewrite(file, {section: names}, COMMAND))
    after = file.path.read_text()
    servers = parse_servers(ClientFile("opencode", file.path, section), after)
    assert servers["toolcrib"]["command"] == COMMAND
    assert servers["toolcrib"]["type"] == "local"
    assert not set(names) & set(servers)
    assert ("// Version 1" in text) is ("// Version 1" in after)
    restore = plan_restore(file)
    assert restore is not None
    assert restore.is_exact
    apply_restore(restore)
    assert file.path.read_text() == text


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
ENTRIES = st.dictionaries(
    NAMES,
    st.fixed_dictionaries({"cmd": st.text(max_size=10), "args": st.lists(st.text(max_size=5), max_size=3)}),
    min_size=1,
    max_size=4,
)


@given(entries=ENTRIES, added=NAMES, data=st.data())
def test_any_entry_is_added_and_removed(entries: dict[str, Any], added: str, data: st.DataObject) -> None:
    text = "# start\n" + yaml.safe_dump({"extensions": entries, "z": 1}, allow_unicode=True, sort_keys=False)
    removed = data.draw(st.sets(st.sampled_from(sorted(entries))))
    after = remove_entries(text, "extensions", removed | {added})
    after = add_entry(after, "extensions", added, {"cmd": "x"}, as_list=False)
    parsed = yaml.safe_load(text)["extensions"]
    kept = {name: entry for name, entry in parsed.items() if name not in removed and name != added}
    assert yaml.safe_load(after) == {"extensions": {**kept, added: {"cmd": "x"}}, "z": 1}
    assert after.startswith("# start\n")
