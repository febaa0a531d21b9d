from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden, vectors
from toolcrib.core.arguments import problems
from toolcrib.core.ranking.prefix import tool_words
from toolcrib.errors import InvalidQuery, InvalidTool, UnknownTool
from toolcrib.profiles import dynamic_registry
from toolcrib.profiles.dynamic_registry import META_TOOLS, DynamicToolRegistry

Row = dict[str, Any]


def answer(registry: DynamicToolRegistry, name: str, **arguments: Any) -> Any:
    return json.loads(registry.call(name, arguments))


# ------------------------------------------------------------------------------- golden vectors


class Replay:
    """Runs the operations of a vector on our registry, and says what ours should answer.

    That is what was recorded, except where the original is at fault; each exception is a rule
    with its reason beside it.
    """

    def __init__(self, deterministic: bool) -> None:
        self.deterministic = deterministic
        self.registry = DynamicToolRegistry()
        self.current: dict[str, dict[str, Any]] = {}
        self.tainted: set[str] = set()
        self.used: Counter[str] = Counter()
        self.failed = False
        self.recorded: Any = None

    def check(self, operation: dict[str, Any], recorded: Any) -> None:
        kind = operation["op"]
        arguments = {key: value for key, value in operation.items() if key != "op"}
        getattr(self, f"_{kind}")(recorded, **arguments)

    def _register(self, recorded: Any, definition: Row, func: str = "", **place: Any) -> None:
        if not definition.get("name"):
            # The original raises a KeyError, or takes an empty name: ours says what is missing.
            assert recorded is None or recorded["raises"] == "KeyError"
            with pytest.raises(InvalidTool, match="needs a name"):
                self.registry.register(definition, self._function(func), **place)
            return
        self._remember(definition, func, place)
        assert self.registry.register(definition, self._function(func), **place) is self.registry

    def _register_versioned(
        self, recorded: Any, definition: Row, func: str = "", **options: Any
    ) -> None:
        self.registry.register_versioned(definition, self._function(func), **options)
        current = self.registry[definition["name"]].tool.version
        if current == recorded["version"]:
            self._remember(definition, func, options, tainted=True)
        else:
            # An older version silently took the newer one's place: ours leaves that where it is.
            assert current > recorded["version"]
        name, version = definition["name"], recorded["version"]
        registration = self.registry[f"{name}@{version}"]
        assert registration.tool.version == version
        assert registration.description == recorded["description"]
        # The original prints; ours has it to be read.
        assert registration.update == recorded["printed"].rstrip("\n")

    def _search(self, recorded: Any, **arguments: Any) -> None:
        if isinstance(recorded, dict):
            # An exception that left the registry: ours is an answer.
            assert "error" in answer(self.registry, "search_tools", **arguments)
            return
        query, limit = arguments["query"], arguments.get("max_results", 5)
        category = arguments.get("category") or ""
        if category and category not in {*self._categories(), *dynamic_registry.CATEGORIES}:
            # An unknown category found nothing without a word: ours says so.
            assert recorded == []
            with pytest.raises(InvalidQuery, match="Unknown category"):
                self.registry.search(**{**arguments, "category": category})
            return
        if not isinstance(limit, int):
            # The original slices with anything: ours names the field, and null is the default.
            ours = answer(self.registry, "search_tools", **arguments)
            assert limit is None or "max_results" in ours["error"]
            return
        ours = self.registry.search(query, category, limit)
        self._compare(ours, recorded, query, category, limit)

    def _compare(
        self, ours: list[Row], recorded: list[Row], query: str, category: str, limit: int
    ) -> None:
        bounded = max(1, min(limit, dynamic_registry.MAX_RESULTS))
        assert len(ours) <= bounded
        if not query.strip():
            # The original promises to list tools and lists none: ours lists them.
            assert recorded == []
            listed = [name for name in self.current if category in ("", self._category(name))]
            assert [row["name"] for row in ours] == listed[:bounded]
        elif self.tainted:
            # The original still finds words of replaced definitions, of version notes and of a
            # description that is not there: ours only words of the tools as they are.
            expected = [
                row for row in map(self._row(query), self.current) if row["relevance_score"]
            ]
            expected = [row for row in expected if category in ("", row["category"])]
            expected.sort(key=lambda row: -row["relevance_score"])
            same_groups(ours, expected[:bounded])
        elif bounded != limit:
            # Below 1 and above 20 the original slices as it comes: ours keeps the stated bounds.
            assert ours == self.registry.search(query, category, bounded)
            assert limit < 0 or scores(ours[:limit]) == scores(recorded[:bounded])
        elif self.deterministic:
            assert ours == recorded
        else:
            same_groups(ours, recorded)

    def _call(self, recorded: Any, name: str, input: Row) -> None:
        if isinstance(recorded, dict) and "raises" in recorded:
            # An exception that left the handler: ours is an answer that names the field.
            error = answer(self.registry, name, **input)["error"]
            if recorded["raises"] == "KeyError":
                assert recorded["message"].strip("'") in error
        elif name == "search_tools":
            self._call_search(recorded, input)
        elif name == "execute_dynamic_tool":
            self._call_execute(recorded, input)
        else:
            assert answer(self.registry, name, **input) == recorded

    def _call_search(self, recorded: Any, arguments: Row) -> None:
        ours = answer(self.registry, "search_tools", **arguments)
        assert "error" in ours or ours["found"] == len(ours.get("tools", []))
        self._search(recorded.get("tools", []), **arguments)
        if not recorded.get("tools") and not ours.get("tools") and "error" not in ours:
            assert ours == recorded

    def _call_execute(self, recorded: Any, arguments: Row) -> None:
        name, tool_input = arguments["tool_name"], arguments["tool_input"]
        known = self.current.get(name) if isinstance(name, str) else None
        self.recorded = recorded
        ours = answer(self.registry, "execute_dynamic_tool", **arguments)
        if known and problems(known["definition"].get("input_schema") or {}, tool_input):
            # What does not fit the schema is run all the same, and counted: ours names the field.
            assert ours["error"].startswith("Execution failed: the arguments do not fit")
            self.failed = True
            return
        constant = known and known["func"].startswith("const:")
        failed = isinstance(recorded, dict) and "error" in recorded and not constant
        if not isinstance(tool_input, dict) or not isinstance(name, str):
            # What is no object is Python's to refuse in the original: ours names the field.
            assert "error" in recorded and "tool_" in ours["error"]
            return
        if known:
            self.failed |= failed
            self.used[name] += not failed
        if known and failed and "suggestion" in recorded:
            # A ValueError in a tool is taken for a wrong name: ours says that the tool failed.
            recorded = {"error": f"Execution failed: {recorded['error']}", "tool_name": name}
        assert ours == recorded

    def _popular(self, recorded: Any, top_n: int = 10) -> None:
        expected = sorted(
            (
                {"name": name, "usage_count": self.used[name], "category": self._category(name)}
                for name in self.current
            ),
            key=lambda row: -self.used[str(row["name"])],
        )
        assert self.registry.get_popular_tools(top_n) == expected[: max(0, top_n)]
        # The original counts failures as use and forgets use when a tool is registered anew.
        assert self.failed or self.tainted or top_n < 0 or recorded == expected[:top_n]

    def _list_categories(self, recorded: Any) -> None:
        assert self.registry.list_categories() == recorded

    def _index_of(self, recorded: Any, name: str) -> None:
        # The original keeps the words of replaced definitions and of version notes.
        assert sorted(tool_words(self.registry[name].tool)) == [
            word for word in recorded if word in self._words(name)
        ]

    def _remember(self, definition: Row, func: str, place: Row, tainted: bool = False) -> None:
        name = definition["name"]
        if tainted or name in self.current or definition.get("description", "") is None:
            self.tainted.add(name)
        self.current[name] = {"definition": definition, "func": func, **place}

    def _words(self, name: str) -> set[str]:
        known = self.current[name]
        description = known["definition"].get("description") or ""
        text = " ".join([name, description, *(known.get("tags") or ())])
        return set(re.findall(r"\w+", text.lower()))

    def _row(self, query: str) -> Callable[[str], Row]:
        asked = set(re.findall(r"\w+", query.lower()))

        def row(name: str) -> Row:
            hits = [
                (word, one) for word in self._words(name) for one in asked if word.startswith(one)
            ]
            score = sum(1.0 if word == one else 0.5 for word, one in hits)
            return {"name": name, "category": self._category(name), "relevance_score": score}

        return row

    def _category(self, name: str) -> str:
        return str(self.current[name].get("category", "utility"))

    def _categories(self) -> set[str]:
        return {self._category(name) for name in self.current}

    def _function(self, spec: str) -> Callable[..., Any]:
        """A function the vectors name; what they leave open, it gives as it was recorded."""

        def add(a: Any, b: Any) -> Any:
            return self.recorded

        add.__qualname__ = "add"
        kind, _, rest = spec.partition(":")
        if kind == "strict2":
            return add
        if kind == "datetime":
            return lambda **_: datetime.fromisoformat(self.recorded)
        if kind.startswith("raise_"):
            return raising({"raise_value": ValueError, "raise_key": KeyError}[kind](rest))
        return lambda **_: json.loads(rest or "{}")


def add(a: Any, b: Any) -> Any:
    return a + b


def raising(fault: BaseException) -> Callable[..., Any]:
    def function(**_: Any) -> Any:
        raise fault

    return function


def same_groups(ours: list[Row], recorded: list[Row]) -> None:
    """The same scores, and under each score the same names; a cut may fall inside the last one."""
    assert scores(ours) == scores(recorded)
    for score in set(scores(ours)) - set(scores(ours)[-1:]):
        assert names_with(score, ours) == names_with(score, recorded)


def scores(rows: list[Row]) -> list[float]:
    return [row["relevance_score"] for row in rows]


def names_with(score: float, rows: list[Row]) -> set[str]:
    return {row["name"] for row in rows if row["relevance_score"] == score}


@pytest.mark.parametrize("vector", vectors("chapter23", "vectors"))
def test_the_registry_answers_as_recorded_or_better(
    vector: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    replay = Replay(vector["deterministic"])
    for operation, recorded in zip(vector["ops"], vector["outputs"], strict=True):
        replay.check(operation, recorded)
    assert capsys.readouterr().out == ""


def test_the_meta_tools_take_what_is_recorded() -> None:
    recorded = golden("chapter23")["meta_tool_schemas_without_descriptions"]
    assert {tool.name: without_descriptions(tool.input_schema) for tool in META_TOOLS} == recorded


def without_descriptions(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_descriptions(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


# ------------------------------------------------------------------------------------ our cases


def workshop() -> DynamicToolRegistry:
    registry = DynamicToolRegistry(lambda: datetime(2026, 1, 2, tzinfo=UTC))
    registry.register(
        {"name": "saw_board", "description": "Cut a board", "input_schema": {"type": "object"}},
        lambda **given: given,
        "data",
        ["wood", "cutting edge"],
    )
    registry.register({"name": "cut_glass", "description": "Cut glass panes"}, add, "media")
    registry.register({"name": "weld", "description": None}, raising(ValueError("no gas")))
    return registry


def names(rows: list[Row]) -> list[str]:
    return [row["name"] for row in rows]


def test_a_whole_word_counts_one_and_a_longer_word_half() -> None:
    rows = workshop().search("cut")
    assert [(row["name"], row["relevance_score"]) for row in rows] == [
        ("saw_board", 1.5),
        ("cut_glass", 1.5),
    ]


def test_a_row_shows_what_is_needed_to_run_the_tool() -> None:
    assert workshop().search("board") == [
        {
            "name": "saw_board",
            "description": "Cut a board",
            "category": "data",
            "tags": ["wood", "cutting edge"],
            "input_schema": {"type": "object"},
            "relevance_score": 1.0,
        }
    ]


def test_a_category_keeps_the_others_out_and_an_unknown_one_says_so() -> None:
    registry = workshop()
    assert names(registry.search("cut", "media")) == ["cut_glass"]
    assert registry.search("cut", "communication") == []
    with pytest.raises(InvalidQuery, match="Unknown category: food"):
        registry.search("cut", "food")
    assert (
        "Unknown category" in answer(registry, "search_tools", query="x", category="food")["error"]
    )


def test_a_blank_query_lists_the_tools() -> None:
    assert names(workshop().search(" ")) == ["saw_board", "cut_glass", "weld"]
    assert names(workshop().search("", "media")) == ["cut_glass"]


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-1, 1), (2, 2), (20, 20), (100, 20)])
def test_the_bounds_of_max_results_hold(asked: int, given: int) -> None:
    registry = DynamicToolRegistry()
    for number in range(25):
        registry.register({"name": f"tool_{number}"}, add)
    assert len(registry.search("tool", max_results=asked)) == given


def test_registering_anew_leaves_no_old_words_and_keeps_use_and_version() -> None:
    registry = workshop()
    registry.register_versioned({"name": "saw_board", "description": "Saw"}, add, "3.1")
    registry.execute("saw_board", {"a": 1, "b": 2})
    registry.register({"name": "saw_board", "description": "Plane"}, add)
    assert names(registry.search("board wood")) == []
    assert names(registry.search("plane")) == ["saw_board"]
    assert registry.registry.usage("saw_board").successes == 1
    assert registry["saw_board"].tool.version == "3.1"


def test_a_tool_taken_away_is_gone() -> None:
    registry = workshop().unregister("saw_board")
    assert names(registry.search("cut")) == ["cut_glass"]
    assert registry.list_categories() == {"media": 1, "utility": 1}
    with pytest.raises(UnknownTool, match="Tool not found: saw_board"):
        registry.unregister("saw_board")


def test_a_version_is_shown_and_not_searched_and_says_which_it_replaced() -> None:
    registry = DynamicToolRegistry()
    registry.register_versioned({"name": "glue", "description": "Join"}, add, "1.0")
    assert registry["glue"].update == ""
    registry.register_versioned({"name": "glue", "description": "Join"}, add, "2.0", ["1.0"])
    assert registry["glue"].update == "Updating tool glue: v1.0 -> v2.0"
    assert registry["glue"].description == "Join\n(Current version: 2.0; deprecated: 1.0)"
    assert registry.search("deprecated version") == []


def test_an_older_version_does_not_take_the_place_of_a_newer_one() -> None:
    registry = DynamicToolRegistry()
    for version in ("2.0", "1.0"):
        definition = {"name": "glue", "description": f"Join {version}"}
        registry.register_versioned(definition, lambda version=version: version, version)
    assert registry.execute("glue", {}) == "2.0"
    assert registry.execute("glue@1.0", {}) == "1.0"
    assert registry.search("join")[0]["description"] == "Join 2.0\n(Version: 2.0)"


def test_input_that_does_not_fit_is_not_run() -> None:
    schema = {"type": "object", "required": ["a", "b"]}
    registry = DynamicToolRegistry().register({"name": "add", "input_schema": schema}, add)
    failed = answer(registry, "execute_dynamic_tool", tool_name="add", tool_input={"a": 1})
    assert failed["tool_name"] == "add"
    assert failed["error"].startswith("Execution failed: the arguments do not fit add: ")
    assert "b" in failed["error"]


def test_a_tool_that_wants_to_exit_has_failed() -> None:
    registry = DynamicToolRegistry().register({"name": "quit"}, raising(SystemExit(3)))
    failed = answer(registry, "execute_dynamic_tool", tool_name="quit", tool_input={})
    assert "SystemExit: 3" in failed["error"]


def test_use_tells_success_from_failure() -> None:
    registry = workshop()
    answer(registry, "execute_dynamic_tool", tool_name="cut_glass", tool_input={"a": 1, "b": 2})
    answer(registry, "execute_dynamic_tool", tool_name="weld", tool_input={})
    used = registry.registry.usage("weld")
    assert (used.failures, used.last_used) == (1, datetime(2026, 1, 2, tzinfo=UTC))
    assert registry.get_popular_tools(2) == [
        {"name": "cut_glass", "usage_count": 1, "category": "media"},
        {"name": "saw_board", "usage_count": 0, "category": "data"},
    ]
    assert registry.get_popular_tools(-1) == []


def test_a_fault_in_a_tool_is_the_tools_and_not_the_names() -> None:
    assert answer(workshop(), "execute_dynamic_tool", tool_name="weld", tool_input={}) == {
        "error": "Execution failed: no gas",
        "tool_name": "weld",
    }
    assert answer(workshop(), "execute_dynamic_tool", tool_name="drill", tool_input={}) == {
        "error": "Tool not found: drill",
        "suggestion": dynamic_registry.VERIFY_NAME,
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("search_tools", {}, "query"),
        ("search_tools", {"query": 7}, "query"),
        ("search_tools", {"query": "cut", "max_results": "5"}, "max_results"),
        ("search_tools", {"query": "cut", "max_results": True}, "max_results"),
        ("search_tools", {"query": "cut", "category": ["data"]}, "category"),
        ("execute_dynamic_tool", {"tool_input": {}}, "tool_name"),
        ("execute_dynamic_tool", {"tool_name": "weld"}, "tool_input"),
        ("execute_dynamic_tool", {"tool_name": "weld", "tool_input": []}, "tool_input"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(
    tool: str, arguments: dict[str, Any], field: str
) -> None:
    assert f"The field {field} " in answer(workshop(), tool, **arguments)["error"]


def test_answers_keep_every_script_readable() -> None:
    registry = DynamicToolRegistry().register({"name": "größe"}, lambda: {"cm": "zwölf"})
    assert "größe" in registry.call("search_tools", {"query": "größe"})
    assert "zwölf" in registry.call(
        "execute_dynamic_tool", {"tool_name": "größe", "tool_input": {}}
    )


def test_a_result_that_is_no_json_is_still_answered_with_json() -> None:
    registry = DynamicToolRegistry().register({"name": "now"}, lambda: datetime(2026, 1, 2))
    assert answer(registry, "execute_dynamic_tool", tool_name="now", tool_input={}) == (
        "2026-01-02 00:00:00"
    )
    registry.register({"name": "now"}, lambda: float("nan"))
    failed = answer(registry, "execute_dynamic_tool", tool_name="now", tool_input={})
    assert failed["error"].startswith("Execution failed: ")


def test_a_search_through_the_meta_tool_counts_what_it_found() -> None:
    assert answer(workshop(), "search_tools", query="cut", max_results=1)["found"] == 1
    assert answer(workshop(), "search_tools", query="paint") == {
        "found": 0,
        "message": "No tools found matching 'paint'",
        "suggestion": dynamic_registry.TRY_OTHER_WORDS,
    }
    assert answer(workshop(), "drop_tools") == {"error": "Unknown meta-tool: drop_tools"}


def test_a_tool_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidTool):
        DynamicToolRegistry().register({"description": "x"}, add)


def test_time_is_told_by_the_clock_unless_another_is_given() -> None:
    registry = DynamicToolRegistry().register({"name": "wait"}, lambda: None)
    registry.execute("wait", {})
    last = registry.registry.usage("wait").last_used
    assert last is not None and last.tzinfo is UTC


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
inputs = values | st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=4), values)


@given(
    name=st.sampled_from(["search_tools", "execute_dynamic_tool", "other"]),
    arguments=st.dictionaries(
        st.sampled_from(["query", "category", "max_results", "tool_name", "tool_input"]),
        inputs | st.sampled_from(["cut", "data", "saw_board", "weld"]),
    ),
)
def test_every_call_is_answered_with_the_same_json(name: str, arguments: dict[str, Any]) -> None:
    first = workshop().call(name, arguments)
    assert isinstance(json.loads(first), dict)
    assert workshop().call(name, arguments) == first


@given(
    definitions=st.lists(
        st.tuples(st.sampled_from("abc"), st.text("xyz ", max_size=6)), max_size=8
    ),
    query=st.text("abcxyz ", max_size=5),
)
def test_what_is_registered_last_is_what_is_found(
    definitions: list[tuple[str, str]], query: str
) -> None:
    step_by_step, at_once = DynamicToolRegistry(), DynamicToolRegistry()
    for name, description in definitions:
        step_by_step.register({"name": name, "description": description}, add)
    for name, description in dict(definitions).items():
        at_once.register({"name": name, "description": description}, add)
    same_groups(step_by_step.search(query), at_once.search(query))


@pytest.mark.parametrize("arguments", [[], None, "x"])
def test_arguments_that_are_no_object_are_answered(arguments: Any) -> None:
    answer = json.loads(DynamicToolRegistry().call("search_tools", arguments))
    assert answer["error"].startswith("arguments must be an object")
