"""Searches that the client does not see: they are put back at their place in later requests."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.gateway.llm.sdk_conversations import APIS, SdkConversation, sdk_conversation
from tests.gateway.llm.test_dispatch import TOOLS, dispatch, search
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import Raw, ToolCall, Turn

EVERY_API = pytest.mark.parametrize("api", APIS)
QUERY = "when is the water high"


def harbour_master(request: Request) -> Turn:
    """Search for the tool of a question, unless its definition is known; then call it and report the result."""
    if request.results and "found" not in request.results[-1]:
        return Turn("At noon.")
    if QUERY not in json.dumps(request.body):
        return Turn("I look.", search(QUERY))
    return Turn(dispatch("read_tide", place="Brest"))


def last_messages(talk: SdkConversation) -> str:
    return json.dumps(talk.upstream_messages(-1))


@EVERY_API
def test_conversation_that_begins_alike_does_not_inherit(api: str) -> None:
    with sdk_conversation(api, harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        first = talk.ask("When is high tide?")
        talk.answer(first)
        assert last_messages(talk).count(QUERY) == 1
        talk.history = []
        number = len(talk.requests)
        talk.ask("When is high tide?")
        assert QUERY not in json.dumps(talk.requests[number].body)


def test_reply_without_searches_replaces_an_equal_one_with_searches() -> None:
    script = [Turn(search(QUERY)), Turn("At noon."), Turn("At noon."), Turn("Yes.")]
    with sdk_conversation("chat", script, TOOLS, style="dispatch", prefetch=False) as talk:
        talk.ask("When is high tide?")
        talk.history = []
        talk.ask("When is high tide?")
        talk.ask("Sure?")
        assert QUERY not in last_messages(talk)


def test_moving_cache_breakpoint_does_not_lose_a_search() -> None:
    with sdk_conversation("messages", harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        mark = {"cache_control": {"type": "ephemeral"}}
        question = {"role": "user", "content": [{"type": "text", "text": "When is high tide?", **mark}]}
        talk.history = [question]
        first = talk.send()
        question["content"] = [{"type": "text", "text": "When is high tide?"}]
        talk.history[1]["content"][-1].update(mark)
        talk.answer(first)
        messages = talk.upstream_messages(-1)
        assert json.dumps(messages).count(QUERY) == 1
        marked = [message["content"][-1] for message in messages if "cache_control" in json.dumps(message)]
        assert [block.get("name") for block in marked] == ["call_tool"]


@EVERY_API
def test_trimmed_history_keeps_the_searches_of_what_is_left(api: str) -> None:
    with sdk_conversation(api, harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        talk.history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
        talk.answer(talk.ask("When is high tide?"))
        talk.history = talk.history[2:]
        again = talk.ask("And tomorrow?")
        assert again.calls == [("read_tide", {"place": "Brest"})]
        assert last_messages(talk).count(QUERY) == 1
        # Without that turn the model has to search again, and nothing else breaks.
        talk.history = [{"role": "user", "content": "A summary of the conversation so far."}]
        assert talk.send().calls == [("read_tide", {"place": "Brest"})]


@EVERY_API
def test_shortened_results_and_other_instructions_do_not_lose_a_search(api: str) -> None:
    with sdk_conversation(api, harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        talk.answer(talk.ask("When is high tide?"), "a long table of tides")
        talk.history = json.loads(json.dumps(talk.history).replace("a long table of tides", "[cleared]"))
        talk.options = {"instructions" if api == "responses" else "system": "It is noon."} if api != "chat" else {}
        talk.ask("And tomorrow?")
        assert last_messages(talk).count(QUERY) == 1


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_rewritten_arguments_do_not_lose_a_search(api: str) -> None:
    with sdk_conversation(api, harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        first = talk.ask("When is high tide?")
        # The Vercel AI SDK parses the arguments, and sends them back in the form of JavaScript.
        call = talk.history[-1]["tool_calls"][0]["function"] if api == "chat" else talk.history[-1]
        call["arguments"] = '{"place":"Brest"}'
        talk.answer(first)
        assert last_messages(talk).count(QUERY) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@EVERY_API
def test_revealed_tools_and_searches_come_back_in_later_requests(api: str, stream: bool) -> None:
    script = [
        Turn("I look.", search(QUERY)),
        Turn("Found.", ToolCall("read_tide", {"place": "Brest"})),
        Turn("At noon."),
        Turn("Yes."),
    ]
    with sdk_conversation(api, script, TOOLS, style="reveal", stream=stream) as talk:
        talk.answer(talk.ask("When is high tide?"))
        talk.ask("Sure?")
        assert {request.tool_names for request in talk.requests[1:]} == {("search_tools", "read_tide")}
        for before, after in ((1, 2), (2, 3)):
            messages = talk.upstream_messages(before)
            assert talk.upstream_messages(after)[: len(messages)] == messages


def test_thinking_is_restored_only_if_the_client_sends_it_back() -> None:
    thought = Raw({"type": "thinking", "thinking": "Hm.", "signature": "x"})
    script = [
        Turn(thought, search(QUERY)),
        Turn(dispatch("read_tide", place="Brest")),
        Turn("At noon."),
        Turn("At noon."),
    ]
    with sdk_conversation("messages", script, TOOLS, style="dispatch", prefetch=False) as talk:
        first = talk.ask("When is high tide?")
        history = copy.deepcopy(talk.history)
        talk.answer(first)
        assert '"thinking"' in last_messages(talk)
        history[1]["content"] = [block for block in history[1]["content"] if block["type"] != "thinking"]
        talk.history = history
        talk.answer(first)
        assert '"thinking"' not in last_messages(talk) and QUERY in last_messages(talk)


@EVERY_API
def test_lost_memory_costs_a_search(api: str) -> None:
    with sdk_conversation(api, harbour_master, TOOLS, style="dispatch", prefetch=False) as talk:
        first = talk.ask("When is high tide?")
        talk.gateway.memory.clear()
        assert talk.answer(first).text == "At noon."
        messages: Any = last_messages(talk)
        assert QUERY not in messages and '"call_tool"' in messages
        assert talk.ask("And tomorrow?").calls == [("read_tide", {"place": "Brest"})]


@EVERY_API
def test_equal_turns_keep_their_own_searches(api: str) -> None:
    script = [
        Turn(search("tie a boat")),
        Turn("There is none."),
        Turn(search("ring the bell")),
        Turn("There is none."),
        Turn("Sorry."),
    ]
    with sdk_conversation(api, script, TOOLS, style="dispatch", prefetch=False) as talk:
        for question in ("Help me.", "Help me.", "Really?"):
            talk.ask(question)
        assert talk.is_prefix_stable()
