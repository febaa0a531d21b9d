"""Defects of a registry that is only a dictionary of words, and what `Registry` does instead.

`Plain` is such a registry. Each test demonstrates a defect of it and the answer of `Registry`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidLimit
from toolcrib.registry.registry import Registry
from toolcrib.search.engine import SearchEngine
from toolcrib.search.filters import Where

Function = Callable[..., Any]


class Plain:
    """A registry with two dictionaries: tools by name, and names by word."""

    def __init__(self) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.names: dict[str, list[str]] = {}

    def register(self, name: str, about: str | None, function: Function, version: str = "") -> None:
        if version:
            about = f"{about}\n(Version: {version})"
        self.tools[name] = {"function": function, "about": about, "uses": 0, "version": version}
        for word in re.findall(r"\w+", f"{name} {about}".lower()):
            if name not in self.names.setdefault(word, []):
                self.names[word].append(name)

    def search(self, query: str, limit: int = 5) -> list[tuple[str, float]]:
        scores: dict[str, float] = {}
        for queries in set(query.lower().split()):
            for word, names in self.names.items():
                for name in names if word.startswith(queries) else []:
                    scores[name] = scores.get(name, 0) + (1 if word == queries else 0.5)
        best = sorted(scores.items(), key=lambda item: -item[1])[:limit]
        return [item for item in best if item[0] in self.tools]

    def answer(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            if name not in self.tools:
                raise ValueError(f"no tool {name}")
            self.tools[name]["uses"] += 1
            return json.dumps(self.tools[name]["function"](**arguments), default=str)
        except ValueError as fault:
            return f"{fault}: is the name right?"


def find_names(registry: Registry, query: str, **options: Any) -> list[str]:
    return [hit.tool.id for hit in SearchEngine(registry.catalog).search(query, mode="lexical", **options)]


def both(*tools: tuple[str, str]) -> tuple[Plain, Registry]:
    plain, registry = Plain(), Registry()
    for name, about in tools:
        plain.register(name, about, lambda: None)
        registry.register(Tool(name, about), lambda: None)
    return plain, registry


def test_replacing_a_tool_drops_old_words_and_keeps_usage() -> None:
    plain, registry = both(("job", "paint the fence"))
    plain.answer("job", {})
    registry.call("job", {})
    plain.register("job", "mow the lawn", lambda: None)
    registry.register(Tool("job", "mow the lawn"), lambda: None, replace=True)
    assert plain.search("fence") == [("job", 1)]
    assert find_names(registry, "fence") == []
    assert plain.tools["job"]["uses"] == 0
    assert registry.usage("job").successes == 1
    registry.unregister("job")
    assert find_names(registry, "lawn") == []


def test_ties_are_in_order_of_registration() -> None:
    # The iteration order of a set of words differs between processes, so the order of ties in
    # `Plain` does too.
    for names in (["alpha", "beta", "gamma"], ["gamma", "beta", "alpha"]):
        _, registry = both(*((name, "cut the glass") for name in names))
        assert find_names(registry, "cut glass") == names


def test_exact_name_wins_and_single_letter_does_not_match_everything() -> None:
    tools = [("send_email", "Send an email"), ("mail_sender", "send_email in bulk send_email_now")]
    plain, registry = both(*tools)
    assert plain.search("send_email")[0] == ("mail_sender", 1.5)
    assert find_names(registry, "send_email") == ["send_email"]
    assert len(plain.search("s")) == 2
    assert find_names(registry, "s") == []


def test_other_word_forms_and_parts_of_names_are_found() -> None:
    plain, registry = both(("sendEmail", "Write"), ("salesforce_lookup", "Find a customer"))
    for query, name in [
        ("emails", "sendEmail"),
        ("email", "sendEmail"),
        ("lookup", "salesforce_lookup"),
        ("force", "salesforce_lookup"),
    ]:
        assert plain.search(query) == []
        assert find_names(registry, query) == [name]


def test_limits_hold_and_unknown_category_is_reported() -> None:
    plain, registry = both(*((f"tool_{number}", "cut") for number in range(4)))
    assert len(plain.search("cut", -1)) == 3
    for limit in (0, -1, 10_001):
        with pytest.raises(InvalidLimit):
            find_names(registry, "cut", limit=limit)
    result = SearchEngine(registry.catalog).search("cut", where=Where(category="glass"))
    assert result.notes == ("no tool at all has category glass",)


def test_empty_query_lists_the_tools() -> None:
    plain, registry = both(("a", "first"), ("b", "second"))
    assert plain.search("") == []
    assert find_names(registry, "") == ["a", "b"]


def test_tool_exception_is_neither_unknown_name_nor_success() -> None:
    def fail() -> None:
        raise ValueError("no gas")

    plain, registry = Plain(), Registry()
    plain.register("weld", "", fail)
    registry.register(Tool("weld"), fail)
    assert plain.answer("weld", {}) == "no gas: is the name right?"
    assert registry.call("weld", {}).text == ("weld accepted the call and failed: ValueError: no gas")
    assert plain.tools["weld"]["uses"] == 1
    assert (registry.usage("weld").successes, registry.usage("weld").failures) == (0, 1)


def test_invalid_arguments_never_reach_the_function() -> None:
    ran: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    plain, registry = Plain(), Registry()
    plain.register("count", "", lambda n: ran.append(n))
    registry.register(Tool("count", "", schema), lambda n: ran.append(n))
    plain.answer("count", {"n": "seven"})
    assert ran == ["seven"]
    with pytest.raises(TypeError):
        plain.answer("count", {})
    assert registry.call("count", {"n": "seven"}).is_error
    assert registry.call("count", {}).is_error
    assert ran == ["seven"]


def test_removed_tool_is_not_in_results() -> None:
    plain, registry = both(("old", "cut"), ("new", "cut"))
    del plain.tools["old"]
    registry.unregister("old")
    assert plain.search("cut", 1) == []
    assert find_names(registry, "cut", limit=1) == ["new"]


def test_versions_coexist_and_are_kept() -> None:
    plain, registry = Plain(), Registry()
    for version in ("2", "1"):
        plain.register("pay", "Pay", lambda version=version: version, version)
        registry.register(Tool("pay", "Pay"), lambda version=version: version, version=version)
    assert plain.tools["pay"]["version"] == "1"
    assert [registry.execute(name, {}) for name in ("pay", "pay@1", "pay@2")] == ["2", "1", "2"]
    assert [name for name, _ in plain.search("version")] == ["pay"]
    assert find_names(registry, "version") == []


def test_missing_description_is_empty() -> None:
    plain, registry = Plain(), Registry()
    plain.register("weld", None, lambda: None)
    registry.register({"name": "weld", "description": None, "input_schema": {}}, lambda: None)
    assert plain.search("none") == [("weld", 1)]
    assert find_names(registry, "none") == []


def test_answers_keep_unicode_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    plain, registry = Plain(), Registry()
    plain.register("größe", "", lambda: ["zwölf"])
    registry.register(Tool("größe"), lambda: ["zwölf"])
    assert plain.answer("größe", {}) == '["zw\\u00f6lf"]'
    assert registry.call("größe", {}).text == '["zwölf"]'
    registry.register(Tool("größe"), lambda: None, version="2")
    assert capsys.readouterr().out == ""
