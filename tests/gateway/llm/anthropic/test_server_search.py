"""The cases that a gateway has to pass to stand in for the API, judged by the official client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.llm.anthropic.requests import (
    BM25,
    HARBOUR,
    REGEX,
    asking,
    by_pattern,
    by_words,
    found,
    held,
    kinds,
    result,
    says,
    tool,
)
from tests.support.scripted_model.turn import ToolCall, Turn

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def undated(entry: dict[str, str]) -> dict[str, str]:
    return {**entry, "type": entry["name"]}


@both
@pytest.mark.parametrize(
    ("search", "call"),
    [
        (REGEX, by_pattern("tide|boat")),
        (BM25, by_words("when is the water high?", limit=1)),
        (undated(REGEX), by_pattern("TIDE")),
        (undated(BM25), by_words("read the tide", limit=1)),
    ],
    ids=["regex", "bm25", "regex-undated", "bm25-undated"],
)
def test_a_model_without_tool_search_finds_a_tool_and_calls_it(
    stream: bool, search: dict[str, str], call: ToolCall
) -> None:
    script = [Turn("Let me look.", call), Turn("There.", ToolCall("read_tide", {"text": "now"}))]
    with asking(script, stream=stream) as asked:
        reply = asked.ask([search, *HARBOUR], "When is high tide?")
    assert kinds(reply) == [
        "text",
        "server_tool_use",
        "tool_search_tool_result",
        "text",
        "tool_use",
    ]
    _, use, answer, _, used = reply["content"]
    assert use["id"].startswith("srvtoolu_") and use["name"] == search["name"]
    assert use["input"] == dict(call.arguments)
    assert answer["tool_use_id"] == use["id"] and "read_tide" in found(answer)
    assert (used["name"], used["input"]) == ("read_tide", {"text": "now"})
    assert used["caller"] == {"type": "direct"} and used["id"].startswith("toolu_")
    assert reply["stop_reason"] == "tool_use"
    first, second = asked.upstream
    assert first.tool_names == (search["name"],)
    assert set(second.tool_names) == {search["name"], *found(answer)}
    assert "defer_loading" not in json.dumps(second.body)
    assert all("type" not in entry for entry in second.body["tools"])


@both
def test_what_is_not_held_back_keeps_its_place_and_what_is_found_comes_after(stream: bool) -> None:
    tools = [tool("anchor"), held("flag"), REGEX, held("lamp"), tool("bell")]
    script = [Turn(by_pattern("lamp")), Turn(by_pattern("flag")), Turn("Done.")]
    with asking(script, stream=stream) as asked:
        asked.ask(tools, "Signal them.")
    shown = ["anchor", REGEX["name"], "bell"]
    assert [list(one.tool_names) for one in asked.upstream] == [
        shown,
        [*shown, "lamp"],
        [*shown, "lamp", "flag"],
    ]


@both
def test_nothing_found_is_a_success_without_references(stream: bool) -> None:
    with asking([Turn(by_pattern("xylophone")), Turn("No.")], stream=stream) as asked:
        reply = asked.ask([REGEX, *HARBOUR], "Play.")
    assert found(reply["content"][1]) == []
    assert reply["stop_reason"] == "end_turn"


@both
@pytest.mark.parametrize(
    "call",
    [
        by_pattern("boat("),
        by_pattern("x" * 201),
        by_words("x" * 501),
        by_pattern("boat", limit=0),
        by_pattern("boat", limit=10_001),
        ToolCall(REGEX["name"], {"query": "boat"}),
        ToolCall(BM25["name"], {}),
    ],
    ids=["bad", "201", "501", "none", "many", "old key", "empty"],
)
def test_a_bad_search_is_an_error_in_its_block_and_the_model_goes_on(
    stream: bool, call: ToolCall
) -> None:
    with asking([Turn(call), Turn("I see."), Turn("Good.")], stream=stream) as asked:
        reply = asked.ask([REGEX, BM25, *HARBOUR], "Find it.")
        later = asked.ask([REGEX, BM25, *HARBOUR], "Never mind.")
    content = reply["content"][1]["content"]
    assert content["type"] == "tool_search_tool_result_error"
    assert content["error_code"] == "invalid_tool_input"
    assert reply["content"][2]["text"] == "I see." and later["content"][0]["text"] == "Good."
    told = asked.upstream[1].body["messages"][-1]["content"][0]
    assert told["is_error"] is True and told["content"] == content["error_message"]


@both
@pytest.mark.parametrize(("name", "most"), [("regex", 200), ("bm25", 500)])
def test_a_query_may_be_as_long_as_the_limit(stream: bool, name: str, most: int) -> None:
    call = by_pattern("x" * most) if name == "regex" else by_words("x" * most)
    with asking([Turn(call), Turn("No.")], stream=stream) as asked:
        reply = asked.ask([REGEX, BM25, *HARBOUR], "Find it.")
    assert found(reply["content"][1]) == []


REFUSED: list[Any] = [
    pytest.param(
        HARBOUR,
        [],
        "At least one tool must have defer_loading=false. All tools cannot be deferred.",
        id="all deferred",
    ),
    pytest.param(
        [REGEX, held("flag", cache_control={"type": "ephemeral"})],
        [],
        "Tool 'flag' cannot have both defer_loading=true and cache_control set. "
        "Tools with defer_loading cannot use prompt caching.",
        id="deferred and cached",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            says("Hi"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "server_tool_use",
                        "id": "srvtoolu_1",
                        "name": REGEX["name"],
                        "input": {"pattern": "x"},
                    },
                    {
                        "type": "tool_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": {
                            "type": "tool_search_tool_search_result",
                            "tool_references": [{"type": "tool_reference", "tool_name": "lost"}],
                        },
                    },
                ],
            },
        ],
        "Tool reference 'lost' not found in available tools",
        id="unknown reference",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            says("Hi"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_search_tool_result",
                        "tool_use_id": "srvtoolu_9",
                        "content": {
                            "type": "tool_search_tool_search_result",
                            "tool_references": [],
                        },
                    }
                ],
            },
        ],
        "messages.1.content.0: unexpected `tool_use_id` found in `tool_search_tool_result` blocks: "
        "srvtoolu_9. Each `tool_search_tool_result` block must have a corresponding "
        "`server_tool_use` block before it.",
        id="orphan",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            says("Hi"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "server_tool_use",
                        "id": "srvtoolu_1",
                        "name": REGEX["name"],
                        "input": {"pattern": "x"},
                    }
                ],
            },
            says("And?"),
        ],
        "`tool_search_tool_regex` tool use with id `srvtoolu_1` was found without a corresponding "
        "`tool_search_tool_result` block",
        id="dangling",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [says("Hi"), result("srvtoolu_1")],
        "messages.1.content.0: `tool_result` is for client tools; `srvtoolu_1` is the id of a "
        "server tool, whose result the API makes itself",
        id="answered by the client",
    ),
    pytest.param(
        [REGEX, held("flag"), held("flag")],
        [],
        "tools: Tool names must be unique.",
        id="twice the same name",
    ),
    pytest.param(
        [{**REGEX, "name": "find"}, held("flag")],
        [],
        "tools.0.tool_search_tool_regex_20251119.name: Input should be 'tool_search_tool_regex'",
        id="another name",
    ),
]


@both
@pytest.mark.parametrize(("tools", "history", "message"), REFUSED)
def test_what_the_api_refuses_is_refused_in_its_words(
    stream: bool, tools: list[dict[str, Any]], history: list[Any], message: str
) -> None:
    with asking([], stream=stream) as asked:
        asked.history = list(history)
        with pytest.raises(anthropic.BadRequestError) as raised:
            asked.ask(tools, *([] if history else ["Hi"]))
    assert raised.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
        "request_id": None,
    }
    assert asked.upstream == []


def test_more_tools_than_allowed_are_refused_with_the_code_for_it() -> None:
    with asking([], settings={"max_tools": 3}) as asked:
        with pytest.raises(anthropic.BadRequestError, match="limit is 3") as raised:
            asked.ask([REGEX, *HARBOUR], "Hi")
        assert raised.value.error_code == "available_tools_limit_exceeded"
        large = [tool(f"chart_{number}", "x" * 500_000) for number in range(9)]
        with pytest.raises(anthropic.BadRequestError, match="4,194,304") as raised:
            asked.ask([REGEX, *large, held("flag")], "Hi")
        assert raised.value.error_code == "available_tools_limit_exceeded"


@both
def test_two_searches_at_once_are_both_answered(stream: bool) -> None:
    script = [Turn(by_pattern("tide"), by_words("tie the boat", limit=1)), Turn("Done.")]
    with asking(script, stream=stream) as asked:
        reply = asked.ask([REGEX, BM25, *HARBOUR], "Go.")
    assert kinds(reply) == [
        "server_tool_use",
        "server_tool_use",
        "tool_search_tool_result",
        "tool_search_tool_result",
        "text",
    ]
    uses, answers = reply["content"][:2], reply["content"][2:4]
    assert [one["id"] for one in uses] == [one["tool_use_id"] for one in answers]
    assert [found(one) for one in answers] == [["read_tide"], ["moor_boat"]]


@both
def test_a_search_beside_a_call_of_the_client_waits_for_its_result(stream: bool) -> None:
    script = [
        Turn("First this.", ToolCall("look", {}), by_pattern("sail", limit=3)),
        Turn("Now.", ToolCall("raise_sail", {})),
        Turn("Up."),
    ]
    tools = [REGEX, tool("look"), *HARBOUR]
    with asking(script, stream=stream) as asked:
        first = asked.ask(tools, "Set sail.")
        second = asked.ask(tools, result(first["content"][1]["id"], "calm"))
        third = asked.ask(tools, result(second["content"][2]["id"]))
    assert kinds(first) == ["text", "tool_use", "server_tool_use"]
    assert first["stop_reason"] == "tool_use" and not first["usage"].get("server_tool_use")
    assert kinds(second) == ["tool_search_tool_result", "text", "tool_use"]
    assert second["content"][0]["tool_use_id"] == first["content"][2]["id"]
    assert found(second["content"][0]) == ["raise_sail"]
    assert second["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}
    assert kinds(third) == ["text"]
    told = [one.body["messages"] for one in asked.upstream]
    assert told[1][2]["role"] == "user" and len(told[1][2]["content"]) == 2
    assert told[2][: len(told[1])] == told[1]


@both
def test_after_so_many_rounds_the_client_is_asked_to_go_on(stream: bool) -> None:
    script = [*(Turn(by_pattern(f"no{number}")) for number in range(12)), Turn("Enough.")]
    with asking(script, stream=stream) as asked:
        first = asked.ask([REGEX, *HARBOUR], "Search on.")
        before = len(asked.upstream)
        second = asked.ask([REGEX, *HARBOUR])
    assert first["stop_reason"] == "pause_turn" and before == 10
    assert kinds(first) == ["server_tool_use", "tool_search_tool_result"] * 10
    assert second["stop_reason"] == "end_turn" and second["content"][-1]["text"] == "Enough."
    last, next_ = asked.upstream[9].body["messages"], asked.upstream[10].body["messages"]
    assert next_[: len(last)] == last


@both
def test_a_found_tool_stays_until_the_history_forgets_it(stream: bool) -> None:
    script = [
        Turn(by_pattern("tide")),
        Turn(ToolCall("read_tide", {})),
        Turn(ToolCall("read_tide", {})),
        Turn("Which?"),
    ]
    with asking(script, stream=stream) as asked:
        first = asked.ask([REGEX, *HARBOUR], "High tide?")
        asked.ask([REGEX, *HARBOUR], result(first["content"][-1]["id"], "noon"))
        asked.history = []
        asked.ask([REGEX, *HARBOUR], "And tomorrow?")
    assert asked.upstream[2].tool_names == (REGEX["name"], "read_tide")
    assert asked.upstream[3].tool_names == (REGEX["name"],)
    told = [one.body["messages"] for one in asked.upstream]
    assert told[1][: len(told[0])] == told[0] and told[2][: len(told[1])] == told[1]


@both
def test_a_client_may_search_by_itself_and_only_refer_to_tools(stream: bool) -> None:
    reference = [{"type": "tool_reference", "tool_name": "read_tide"}]
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "tide"}}
    script = [Turn(ToolCall("read_tide", {"text": "now"}))]
    with asking(script, stream=stream) as asked:
        reply = asked.ask(
            [tool("ToolSearch"), *HARBOUR],
            "High tide?",
            {"role": "assistant", "content": [call]},
            result("toolu_1", reference),
        )
    assert kinds(reply) == ["tool_use"] and "server_tool_use" not in reply["usage"]
    (request,) = asked.upstream
    assert request.tool_names == ("ToolSearch", "read_tide")
    assert "read_tide" in request.results[0] and "water is high" in request.results[0]
    assert "tool_reference" not in json.dumps(request.body)


def test_counting_tokens_leaves_out_what_is_held_back() -> None:
    with asking([]) as asked:

        def count(tools: Any) -> int:
            return asked.client.messages.count_tokens(
                model="plain", messages=[{"role": "user", "content": "Hi"}], tools=tools
            ).input_tokens

        large = "Much to say about it. " * 100
        assert count([REGEX, held("flag", large)]) == count([REGEX, held("lamp", large * 9)])
        assert count([REGEX, tool("flag", large)]) > count([REGEX, held("flag", large)])


@both
def test_usage_is_the_sum_of_all_passes(stream: bool) -> None:
    script = [Turn(by_pattern("tide")), Turn(by_pattern("sail")), Turn("Done.")]
    with asking(script, stream=stream) as asked:
        reply = asked.ask([REGEX, *HARBOUR], "Go.")
    passes = [max(1, len(json.dumps(one.body, ensure_ascii=False)) // 4) for one in asked.upstream]
    assert reply["usage"]["input_tokens"] == sum(passes)
    assert reply["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}


@both
def test_betas_and_fields_that_nobody_knows_are_passed_on(stream: bool) -> None:
    with asking([Turn(by_pattern("tide")), Turn("Done.")], stream=stream) as asked:
        asked.ask(
            [REGEX, *HARBOUR],
            "Go.",
            beta=True,
            betas=["advanced-tool-use-2025-11-20", "never-heard-of-2030-01-01"],
            extra_body={"vendor_option": {"depth": 3}, "metadata": {"user_id": "u1"}},
        )
    for request in asked.upstream:
        assert request.body["vendor_option"] == {"depth": 3}
        assert request.body["metadata"] == {"user_id": "u1"}
        assert "never-heard-of-2030-01-01" in request.headers["anthropic-beta"]
