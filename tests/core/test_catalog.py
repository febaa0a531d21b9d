from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Catalog, Tool
from toolcrib.core.catalog import CatalogDiff
from toolcrib.errors import DuplicateTool, InvalidTool, UnknownTool


def _tools(names: str, description: str = "") -> list[Tool]:
    return [Tool(name, description) for name in names]


def _names(catalog: Catalog) -> str:
    return "".join(tool.name for tool in catalog)


def test_a_catalog_is_an_ordered_set_of_tools_by_id() -> None:
    catalog = Catalog(_tools("cab"))
    assert _names(catalog) == "cab"
    assert len(catalog) == 3
    assert "a" in catalog
    assert "x" not in catalog
    assert 5 not in catalog
    assert catalog["a"] == Tool("a")
    assert catalog.get("x") is None
    assert repr(catalog) == "Catalog(3 tools)"


def test_an_unknown_id_says_so() -> None:
    with pytest.raises(UnknownTool, match="no tool 'x' in this catalog of 1"):
        Catalog(_tools("a"))["x"]
    with pytest.raises(UnknownTool, match="no tool 'x'"):
        Catalog(_tools("a")).without(["x"])


def test_what_is_not_a_tool_is_refused_with_the_way_to_read_it() -> None:
    bad: Any = [Tool("a"), {"name": "b"}]
    with pytest.raises(InvalidTool, match="entry 2 of a catalog is not a Tool but dict"):
        Catalog(bad)


def test_one_id_given_as_text_is_one_id() -> None:
    assert _names(Catalog([Tool("a"), Tool("b"), Tool("ab")]).without("ab")) == "ab"


def test_two_tools_with_one_id_are_refused_by_number() -> None:
    with pytest.raises(DuplicateTool, match="tools 1 and 3 have the same id 'a'"):
        Catalog(_tools("aba"))
    with pytest.raises(DuplicateTool, match="two of the tools to add have the id 'x'"):
        Catalog(_tools("a")).with_tools(_tools("xx"))


def test_new_tools_come_last_and_known_ones_keep_their_place() -> None:
    catalog = Catalog(_tools("abc"))
    later = catalog.with_tools([Tool("d"), Tool("b", "new")])
    assert _names(later) == "abcd"
    assert later["b"].description == "new"
    assert catalog["b"].description == ""
    assert len(catalog) == 3


def test_a_removed_tool_leaves_and_comes_back_last() -> None:
    catalog = Catalog(_tools("abc")).without("a")
    assert _names(catalog) == "bc"
    assert catalog.get("a") is None
    assert _names(catalog.with_tools(_tools("a"))) == "bca"


def test_the_version_depends_on_the_tools_and_their_order_and_on_nothing_else() -> None:
    catalog = Catalog(_tools("abc"))
    assert catalog.version == Catalog(_tools("abc")).version
    assert catalog.version == Catalog(_tools("ab")).with_tools(_tools("c")).version
    assert catalog.version != Catalog(_tools("bac")).version
    assert catalog.version != Catalog(_tools("abc", "other")).version
    assert catalog == Catalog(_tools("abc"))
    assert hash(catalog) == hash(Catalog(_tools("abc")))
    assert catalog != Catalog(_tools("ab"))
    assert catalog != "abc"


def test_the_difference_of_two_catalogs_names_what_came_changed_and_went() -> None:
    before = Catalog(_tools("abc"))
    after = before.without("a").with_tools([Tool("b", "new"), Tool("d")])
    expected = CatalogDiff(added=(Tool("d"),), changed=(Tool("b", "new"),), removed=(Tool("a"),))
    assert after.difference(before) == expected
    assert Catalog(after).difference(before) == expected
    assert expected
    assert not before.difference(before)


def test_catalogs_of_different_descent_have_no_slots_in_common() -> None:
    assert Catalog(_tools("abc")).changed_slots(Catalog(_tools("abc"))) is None


def test_changed_slots_are_those_that_differ_whichever_way_one_looks() -> None:
    before = Catalog(_tools("abc"))
    after = before.without("a").with_tools(_tools("d"))
    assert after.changed_slots(before) == [0, 3]
    assert before.changed_slots(after) == [0, 3]
    assert after.without("d").with_tools([before["b"]]).changed_slots(before) == [0]


def test_many_changes_are_folded_in_without_renumbering() -> None:
    before = catalog = Catalog(_tools("ab"))
    for number in range(600):
        catalog = catalog.with_tools([Tool(f"t{number}")])
    assert len(catalog) == 602
    assert catalog.changed_slots(before) == list(range(2, 602))
    assert [tool.name for tool in catalog][:3] == ["a", "b", "t0"]


def test_a_catalog_of_holes_is_numbered_anew() -> None:
    catalog = Catalog(_tools("a"))
    for _ in range(1_100):
        catalog = catalog.with_tools([Tool("x")]).without(["x"])
    assert _names(catalog) == "a"
    assert catalog.slot_count < 1_100


_steps = st.lists(
    st.tuples(st.sampled_from("+-"), st.sampled_from("abcdefgh"), st.sampled_from("12")),
    max_size=30,
)


@given(_steps)
def test_successors_equal_a_catalog_made_at_once(steps: list[tuple[str, str, str]]) -> None:
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
