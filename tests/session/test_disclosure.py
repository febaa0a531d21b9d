from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.tool import Policy, Tool
from toolcrib.errors import InvalidConfig
from toolcrib.session.disclosure import Activation, Disclosure, Selection


def _tools(count: int) -> list[Tool]:
    return [Tool(f"t{number}", "does a thing", server=f"s{number % 3}") for number in range(count)]


def _names(tools: object) -> list[str]:
    assert isinstance(tools, list | tuple)
    return [tool.name for tool in tools]


def test_thresholds_of_known_systems_can_be_expressed() -> None:
    everruns, mcproxy = Activation(tools=15), Activation(tools=51)
    shipit = Activation(tools=11, tokens=4_097)
    assert [everruns.is_met(_tools(count)) for count in (14, 15)] == [False, True]
    assert [mcproxy.is_met(_tools(count)) for count in (50, 51)] == [False, True]
    assert [shipit.is_met(_tools(count)) for count in (10, 11)] == [False, True]
    assert shipit.is_met([Tool("a", "word " * 5_000)])
    assert not Activation().is_met(_tools(999))


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        (True, Activation(tools=0)),
        (False, Activation()),
        (15, Activation(tools=15)),
        ("auto", Activation(tokens=20_000)),
        ("auto:5%", Activation(tokens=10_000)),
        ("auto:2.5", Activation(tokens=5_000)),
    ],
)
def test_setting_is_parsed(setting: object, meant: Activation) -> None:
    assert Activation.parse(setting) == meant


@pytest.mark.parametrize("setting", ["sometimes", "auto:101%", -1, None, "auto:x%"])
def test_unknown_setting_lists_the_valid_ones(setting: object) -> None:
    with pytest.raises(InvalidConfig, match="auto:10%"):
        Activation.parse(setting)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": "auto:10%"}, "Activation.parse"),
        ({"pinned": "send_mail"}, r"write frozenset\({'send_mail'}\)"),
        ({"selection": "usage"}, "selection is a Selection, not 'usage'"),
        ({"count": 5}, "count is a function that returns the tokens of a text, not 5"),
        ({"tier": "half"}, "the tiers are full, stub, name, hidden"),
        ({"max_visible_tools": -1}, "max_visible_tools is a whole number from 0"),
        ({"max_visible_tokens": True}, "max_visible_tokens is a whole number from 0"),
    ],
)
def test_invalid_disclosure_setting_is_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Disclosure(**settings)


def test_single_order_may_be_passed_as_a_string() -> None:
    assert Selection("usage") == Selection(("usage",))  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="no order of tools 'size'"):
        Selection("size")  # type: ignore[arg-type]


def test_negative_activation_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="tools is a whole number"):
        Activation(tools=-1)


def test_few_tools_are_visible_and_many_are_deferred() -> None:
    few, many = Disclosure().plan(_tools(30)), Disclosure().plan(_tools(31))
    assert (len(few.visible_tools), len(few.deferred_tools), few.is_active) == (30, 0, False)
    assert (len(many.visible_tools), len(many.deferred_tools), many.is_active) == (0, 31, True)


def test_pins_and_policies_override_the_activation() -> None:
    policies: list[Policy] = ["never", "automatic", "always", "always"]
    tools = [Tool(f"t{at}", policy=policy) for at, policy in enumerate(policies)]
    few = Disclosure(pinned=frozenset({"t3"})).plan(tools)
    assert _names(few.visible_tools) == ["t0", "t1", "t3"]
    many = Disclosure(Activation(tools=0), frozenset({"t3"}), tier="name").plan(tools)
    assert (_names(many.visible_tools), many.tier) == (["t0", "t3"], "name")


def test_tier_full_defers_nothing() -> None:
    plan = Disclosure(Activation(tools=0), tier="full").plan([Tool("a"), Tool("b", policy="always")])
    assert (_names(plan.visible_tools), plan.is_active) == (["a", "b"], False)


def test_additional_visible_tools_follow_the_selection_order() -> None:
    order = Selection(("server_priority", "alphabetical"), servers=("s2",))
    cut = Disclosure(Activation(tools=0), max_visible_tools=3, selection=order)
    assert _names(cut.plan(_tools(9)).visible_tools) == ["t2", "t5", "t8"]


def test_token_budget_skips_tools_that_are_too_large() -> None:
    tools = [Tool("a", "word " * 90), Tool("b"), Tool("c", policy="always"), Tool("d")]
    cut = Disclosure(Activation(tools=0), max_visible_tools=None, max_visible_tokens=60)
    assert _names(cut.plan(tools).visible_tools) == ["b", "d"]
    assert (
        _names(Disclosure(Activation(tools=0), max_visible_tokens=0, max_visible_tools=9).plan(tools).visible_tools)
        == []
    )


def test_whole_servers_are_selected_smallest_first() -> None:
    sizes = {"big": 5, "small": 1, "mid": 3, "other": 3}
    tools = [Tool(f"t{number}", server=server) for server, size in sizes.items() for number in range(size)]
    order = Selection(("server_size",))
    settings = Disclosure(Activation(tools=0), max_visible_tools=6, whole_servers=True, selection=order)
    shown = settings.plan(tools).visible_tools
    assert [tool.server for tool in shown] == ["small", "mid", "mid", "mid"]
    few = Disclosure(
        Activation(tools=0),
        max_visible_tools=None,
        max_visible_tokens=60,
        whole_servers=True,
        selection=order,
        count=lambda text: 10,
    )
    assert {tool.server for tool in few.plan(tools).visible_tools} == {"small", "mid"}
    everything = Disclosure(Activation(tools=0), max_visible_tools=99, whole_servers=True)
    assert len(everything.plan(tools).visible_tools) == 12


def test_each_order_breaks_the_ties_of_the_previous_ones() -> None:
    tools = [Tool("b", server="y"), Tool("a", server="y"), Tool("c", server="x")]
    assert _names(Selection().sort_tools(tools)) == ["b", "a", "c"]
    with pytest.raises(InvalidConfig, match="the orders are server_priority, alphabetical"):
        Selection(("nonsense",))
    assert _names(Selection(("alphabetical",)).sort_tools(tools)) == ["a", "b", "c"]
    assert _names(Selection(("server_priority",)).sort_tools(tools)) == ["a", "b", "c"]
    assert _names(Selection(("server_priority",), servers=("x",)).sort_tools(tools)) == ["c", "a", "b"]
    used = Selection(("usage", "alphabetical"), usage={"x___c": 2, "y___b": 1})
    assert _names(used.sort_tools(tools)) == ["c", "b", "a"]


def test_random_order_depends_only_on_seed_and_name() -> None:
    tools = _tools(12)
    one, other = Selection(("random",), seed=1), Selection(("random",), seed=2)
    assert one.sort_tools(tools) == one.sort_tools(list(reversed(tools))) != other.sort_tools(tools)
    fewer = [tool for tool in one.sort_tools(tools) if tool in tools[:6]]
    assert fewer == one.sort_tools(tools[:6])


def test_tools_that_exceed_a_budget_are_deferred() -> None:
    tools = [Tool("a"), Tool("b", policy="never"), Tool("c")]

    def count(tool: Tool) -> int:
        return 10

    disclosure = Disclosure()
    assert disclosure.plan_within(tools, 30, count) == disclosure.plan(tools)
    assert disclosure.plan_within(tools, None, count) == disclosure.plan(tools)
    plan = disclosure.plan_within(tools, 29, count)
    assert ([tool.id for tool in plan.visible_tools], plan.is_active) == (["b"], True)


def test_pinned_names_may_be_any_collection() -> None:
    tools = [Tool(name) for name in "abc"]
    names: Any = ["b"]
    settings = Disclosure(Activation(tools=0), pinned=names)
    assert settings == Disclosure(Activation(tools=0), pinned=frozenset({"b"}))
    assert _names(settings.plan(tools).visible_tools) == ["b"]


@pytest.mark.parametrize("pinned", [None, 5, [5], [Tool("a")], b"a"])
def test_pinned_names_are_texts(pinned: Any) -> None:
    with pytest.raises(InvalidConfig, match="pinned is a set of the names or ids of tools, not"):
        Disclosure(pinned=pinned)


def test_fields_of_a_selection_are_validated() -> None:
    wrong: Any = 5
    for fields in ({"by": wrong}, {"servers": wrong}, {"servers": "shop"}):
        with pytest.raises(InvalidConfig, match="is a tuple of texts, not"):
            Selection(**fields)
    with pytest.raises(InvalidConfig, match="usage is the number of calls by the id of a tool, not 5"):
        Selection(("usage",), usage=wrong)
