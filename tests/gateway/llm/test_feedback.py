"""Which tool a model called after a search, and that it served, teaches the model gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import anthropic
import openai
import pytest

from tests.gateway.llm.serving import serving
from tests.gateway.llm.serving_openai import WORDS, chat_functions, functions, parameters
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.config.settings import Api, ModelGateway, ModelUpstream
from toolcrib.core.tool import Tool
from toolcrib.gateway.llm.feedback import known_by
from toolcrib.gateway.llm.gateway import Gateway
from toolcrib.hub.feedback import Lessons
from toolcrib.storage import open_store

Json = dict[str, Any]
RATE = "get_exchange_rate"
CALL = ToolCall(RATE, {"currency": "USD"})
LATER = "holiday in Rome"


def _search(query: str, name: str = "search_tools") -> ToolCall:
    return ToolCall(name, {"query": query})


FOUND = Turn(_search(f"exchange rate of currencies, {LATER}"))


@pytest.fixture(autouse=True)
def _by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are enough here, and take no model that has to be loaded."""
    for module in ("toolset", "tool_index"):
        monkeypatch.setattr(f"toolcrib.gateway.llm.{module}.MOST_READ", 0)
        monkeypatch.setattr(f"toolcrib.gateway.llm.{module}.MOST_SKETCHED", 0)


class Client(Protocol):
    """A conversation with a model through one API, in the words of its official client."""

    def ask(self) -> None:
        """Let the model speak."""

    def answer(self, text: str, *, is_error: bool = False) -> None:
        """Answer the calls of its last turn, and let it speak."""


class Chat:
    """Chat Completions."""

    def __init__(self, url: str, key: str) -> None:
        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        self._messages: list[Json] = [{"role": "user", "content": "What do I need in Rome?"}]

    def ask(self) -> None:
        create: Any = self._client.chat.completions.create
        reply = create(model="m", messages=self._messages, tools=chat_functions())
        self._messages.append(reply.choices[0].message.model_dump(exclude_none=True))

    def answer(self, text: str, *, is_error: bool = False) -> None:
        self._messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call in self._messages[-1]["tool_calls"]
        ]
        self.ask()


class Responses:
    """Responses."""

    def __init__(self, url: str, key: str) -> None:
        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        self._input: list[Json] = [{"role": "user", "content": "What do I need in Rome?"}]
        self._calls: list[str] = []

    def ask(self) -> None:
        create: Any = self._client.responses.create
        reply = create(model="m", input=self._input, tools=functions())
        said = [item.model_dump(exclude_none=True) for item in reply.output]
        self._calls = [item["call_id"] for item in said if item["type"] == "function_call"]
        self._input += said

    def answer(self, text: str, *, is_error: bool = False) -> None:
        self._input += [
            {"type": "function_call_output", "call_id": id, "output": text} for id in self._calls
        ]
        self.ask()


class Messages:
    """Anthropic's Messages, whose client may know of tool search or not."""

    def __init__(self, url: str, key: str, *, native: bool = False) -> None:
        self._client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
        self._messages: list[Json] = [{"role": "user", "content": "What do I need in Rome?"}]
        own = {"defer_loading": True} if native else {}
        self._tools: list[Json] = [
            {"name": name, "description": about, "input_schema": parameters(field), **own}
            for name, about, field in WORDS
        ]
        if native:
            kind = "tool_search_tool_bm25_20251119"
            self._tools.append({"type": kind, "name": "tool_search_tool_bm25"})

    def ask(self) -> None:
        create: Any = self._client.messages.create
        reply = create(model="m", max_tokens=99, messages=self._messages, tools=self._tools)
        content = [block.model_dump(exclude_none=True) for block in reply.content]
        self._messages.append({"role": "assistant", "content": content})

    def answer(self, text: str, *, is_error: bool = False) -> None:
        blocks = self._messages[-1]["content"]
        content = [
            {
                "type": "tool_result",
                "tool_use_id": block["id"],
                "content": text,
                "is_error": is_error,
            }
            for block in blocks
            if block["type"] == "tool_use"
        ]
        self._messages.append({"role": "user", "content": content})
        self.ask()


class Bench:
    """A gateway that learns, before a model that follows a script."""

    def __init__(self, url: str, model: ScriptedModel, lessons: Lessons) -> None:
        self.url = url
        self.lessons = lessons
        self._model = model

    def told(self) -> str:
        """What the model was last told."""
        body = self._model.requests[-1].body
        return json.dumps((body.get("messages") or body["input"])[-1])

    def learned(self) -> int:
        """How many tools something is known of, once everything noted is learned."""
        self.lessons.flush()
        return self.lessons.told()["tools"]


@contextmanager
def bench(api: Api, *script: Turn, **settings: Any) -> Iterator[Bench]:
    with ScriptedModel(list(script)) as model, closing(open_store("sqlite://")) as store:
        lessons = Lessons(store.lessons, lambda: b"sixteen bytes or more")
        one = ModelUpstream("scripted", api=api, url=model.url)
        made = ModelGateway((one,), threshold_tools=3, **settings)
        with serving(Gateway(made, lessons=lessons)) as served:
            yield Bench(served.url, model, lessons)


EVERY_API = pytest.mark.parametrize(
    ("api", "client"), [("openai", Chat), ("openai", Responses), ("messages", Messages)]
)


@EVERY_API
def test_a_tool_that_was_found_and_then_served_is_found_by_its_words(api: Api, client: Any) -> None:
    again = [Turn(_search(LATER)), Turn("Hm.")]
    with bench(api, *again, FOUND, Turn(CALL), Turn("Good."), *again, *again) as one:
        client(one.url, "ann").ask()
        assert RATE not in one.told()
        first = client(one.url, "ann")
        first.ask()
        assert one.learned() == 0
        first.answer("0.9")
        assert one.learned() == 1
        client(one.url, "ann").ask()
        assert RATE in one.told()
        # Another client hears nothing of it.
        client(one.url, "bob").ask()
        assert RATE not in one.told()
        assert RATE not in json.dumps(one.lessons._store.tools())


@EVERY_API
def test_a_call_that_failed_teaches_nothing(api: Api, client: Any) -> None:
    with bench(api, FOUND, Turn(CALL), Turn("Oh.")) as one:
        asking = client(one.url, "ann")
        asking.ask()
        asking.answer("Error: no such currency", is_error=True)
        assert one.learned() == 0


def test_searches_that_the_client_sees_teach_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    # Words alone are searched there as the API does it, which is not taught.
    monkeypatch.setattr("toolcrib.gateway.llm.toolset.MOST_SKETCHED", 2_000)
    name = "tool_search_tool_bm25"
    found = Turn(_search("exchange rate of currencies for a holiday", name))
    with bench("messages", found, Turn(CALL), Turn("Good.")) as one:
        asking = Messages(one.url, "ann", native=True)
        asking.ask()
        asking.answer("0.9")
        assert one.learned() == 1


def test_a_request_that_is_sent_again_counts_once() -> None:
    with bench("openai", FOUND, Turn(CALL), Turn("Good."), Turn("Good.")) as one:
        asking = Chat(one.url, "ann")
        asking.ask()
        asking.answer("0.9")
        assert one.learned() == 1
        kept = one.lessons._store.number()
        asking._messages.pop()
        asking.ask()
        one.learned()
        assert one.lessons._store.number() == kept


def test_switched_off_nothing_is_learned() -> None:
    with bench("openai", FOUND, Turn(CALL), Turn("Good."), learn=False) as one:
        asking = Chat(one.url, "ann")
        asking.ask()
        asking.answer("0.9")
        assert one.learned() == 0
        assert one.lessons._store.tools() == {}


def test_a_tool_of_the_same_name_that_says_something_else_is_another_one() -> None:
    one, same, other = Tool("a", "b"), Tool("a", "b", {"type": "object"}), Tool("a", "c")
    assert known_by(one) == known_by(same) != known_by(other)
