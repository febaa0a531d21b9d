from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import Tool as McpTool

from toolcrib import Catalog, Registry, Tool
from toolcrib.core.catalog import CatalogDiff
from toolcrib.errors import DuplicateTool, InvalidSchema, InvalidTool, UnknownTool


def _tools(names: str, description: str = "") -> list[Tool]:
    return [Tool(name, description) for name in names]


def _names(catalog: Catalog) -> str:
    return "".join(tool.name for tool in catalog)


def test_catalog_is_an_ordered_set_of_tools_by_id() -> None:
    catalog = Catalog(_tools("cab"))
    assert _names(catalog) == "cab"
    assert len(catalog) == 3
    assert "a" in catalog
    assert "x" not in catalog
    assert 5 not in catalog
    assert catalog["a"] == Tool("a")
    assert catalog.get("x") is None
    assert repr(catalog) == "Catalog(3 tools)"


def test_unknown_id_raises_unknown_tool() -> None:
    with pytest.raises(UnknownTool, match="no tool 'x' in this catalog of 1"):
        Catalog(_tools("a"))["x"]
    with pytest.raises(UnknownTool, match="no tool 'x'"):
        Catalog(_tools("a")).without(["x"])


def _send_mail(to: str) -> str:
    """Send an e-mail."""
    return to


ENTRIES: list[Any] = [
    {"name": "claude", "input_schema": {}},
    {"type": "function", "function": {"name": "chat", "parameters": {}}},
    {"type": "function", "name": "responses", "parameters": {}},
    {"functionDeclarations": [{"name": "gemini"}]},
    {"name": "mcp", "inputSchema": {}},
    _send_mail,
    Tool("ours"),
    McpTool(name="sdk", input_schema={}),
    [Tool("nested")],
]
IDS = ["claude", "chat", "responses", "gemini", "mcp", "_send_mail", "ours", "sdk", "nested"]


def test_tools_in_every_format_are_accepted() -> None:
    for source in (ENTRIES, tuple(ENTRIES), iter(ENTRIES), dict(enumerate(ENTRIES)).values()):
        assert [tool.id for tool in Catalog(source)] == IDS
    assert [tool.id for tool in Catalog([Tool("first")]).with_tools(ENTRIES)] == ["first", *IDS]


def test_single_tool_may_be_passed_without_a_list() -> None:
    for entry, id in zip(ENTRIES[:-1], IDS, strict=False):
        assert [tool.id for tool in Catalog(entry)] == [id]
        assert [tool.id for tool in Catalog().with_tools(entry)] == [id]
    registry = Registry()
    registry.add(_send_mail)
    assert [tool.id for tool in Catalog(registry)] == ["_send_mail"]
    assert Catalog(Catalog([Tool("a")])) == Catalog([Tool("a")])


def test_path_of_a_file_is_an_error_that_says_how_to_read_it() -> None:
    for path in ("tools.json", Path("tools.json")):
        with pytest.raises(InvalidTool, match=r"`toolcrib.read_catalog_file` reads the tools of a file"):
            Catalog(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", ["send_mail", 7, [Tool("a"), {"nothing": "known"}], [Tool("a"), Tool("a"), {"name": "b"}]]
)
def test_invalid_entry_is_located(bad: Any) -> None:
    with pytest.raises((InvalidTool, DuplicateTool), match=r"entry \d: "):
        Catalog(bad)


def test_broken_schema_of_an_entry_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidSchema, match=r"entry 2: tool 'odd': .*strng"):
        Catalog([Tool("a"), {"name": "odd", "input_schema": {"type": "strng"}}])


def test_single_id_may_be_passed_as_a_string() -> None:
    assert _names(Catalog([Tool("a"), Tool("b"), Tool("ab")]).without("ab")) == "ab"


def test_duplicate_ids_are_rejected_with_their_positions() -> None:
    with pytest.raises(DuplicateTool, match="tools 1 and 3 have the same id 'a'"):
        Catalog(_tools("aba"))
    with pytest.raises(DuplicateTool, match="two of the tools to add have the id 'x'"):
        Catalog(_tools("a")).with_tools(_tools("xx"))


def test_new_tools_are_appended_and_known_tools_keep_their_slots() -> None:
    catalog = Catalog(_tools("abc"))
    later = catalog.with_tools([Tool("d"), Tool("b", "new")])
    assert _names(later) == "abcd"
    assert later["b"].description == "new"
    assert catalog["b"].description == ""
    assert len(catalog) == 3


def test_removed_tool_is_appended_when_added_again() -> None:
    catalog = Catalog(_tools("abc")).without("a")
    assert _names(catalog) == "bc"
    assert catalog.get("a") is None
    assert _names(catalog.with_tools(_tools("a"))) == "bca"


def test_version_depends_on_tools_and_order_only() -> None:
    catalog = Catalog(_tools("abc"))
    assert catalog.version == Catalog(_tools("abc")).version
    assert catalog.version == Catalog(_tools("ab")).with_tools(_tools("c")).version
    assert catalog.version != Catalog(_tools("bac")).version
    assert catalog.version != Catalog(_tools("abc", "other")).version
    assert catalog == Catalog(_tools("abc"))
    assert hash(catalog) == hash(Catalog(_tools("abc")))
    assert catalog != Catalog(_tools("ab"))
    assert catalog != "abc"


def test_difference_lists_added_changed_and_removed_tools() -> None:
    before = Catalog(_tools("abc"))
    after = before.without("a").with_tools([Tool("b", "new"), Tool("d")])
    expected = CatalogDiff(added=(Tool("d"),), changed=(Tool("b", "new"),), removed=(Tool("a"),))
    assert after.difference(before) == expected
    assert Catalog(after).difference(before) == expected
    assert expected
    assert not before.difference(before)


def test_unrelated_catalogs_have_no_changed_slots() -> None:
    assert Catalog(_tools("abc")).changed_slots(Catalog(_tools("abc"))) is None


def test_changed_slots_are_symmetric() -> None:
    before = Catalog(_tools("abc"))
    after = before.without("a").with_tools(_tools("d"))
    assert after.changed_slots(before) == [0, 3]
    assert before.changed_slots(after) == [0, 3]
    assert after.without("d").with_tools([before["b"]]).changed_slots(before) == [0]


def test_many_changes_are_merged_without_new_slot_numbers() -> None:
    before = catalog = Catalog(_tools("ab"))
    for number in range(600):
        catalog = catalog.with_tools([Tool(f"t{number}")])
    assert len(catalog) == 602
    assert catalog.changed_slots(before) == list(range(2, 602))
    assert [tool.name for tool in catalog][:3] == ["a", "b", "t0"]


def test_catalog_with_mostly_empty_slots_gets_new_slot_numbers() -> None:
    catalog = Catalog(_tools("a"))
    for _ in range(1_100):
        catalog = catalog.with_tools([Tool("x")]).without(["x"])
    assert _names(catalog) == "a"
    assert catalog.slot_count < 1_100


_steps = st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from("abcdefgh"), st.sampled_from("12")), max_size=30)


@given(_steps)
def test_successors_equal_a_catalog_built_directly(steps: list[tuple[str, str, str]]) -> None:
    catalog = before = Catalog(_tools("abc"))
    plain = {tool.id: tool for tool in catalog}
    for sign, name, description in steps:
        if sign == "+":
            plain[name] = Tool(name, description)
            catalog = catalog.with_tools([Tool(name, description)])
        elif name in catalog:
            del plain[name]
            catalog = catalog.without([name])
    assert list(catalog) == list(plain.values())
    assert catalog == Catalog(plain.values())
    assert catalog.version == Catalog(plain.values()).version
    difference = catalog.difference(before)
    assert difference == Catalog(plain.values()).difference(before)
